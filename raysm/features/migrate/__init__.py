"""From a script of the SageMaker SDK, or commands of simple-sagemaker, to raysm."""

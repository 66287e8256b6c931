"""The two kinds of target, AWS and the embedded SageMaker, as the client connects to them."""

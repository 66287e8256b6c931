"""The table of experiments, ``raysm.jobs``, and its copy in MLflow."""

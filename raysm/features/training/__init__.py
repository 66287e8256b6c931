"""Training over all workers: torchrun scripts and training loops, checkpoints, data and model parallelism.

``raysm.training`` has the names that users import; ``cluster/launch`` starts the workers.
"""

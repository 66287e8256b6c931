"""Training over all workers: torchrun scripts, training loops, checkpoints and parallelism.

``raysm.training`` has the names that users import; ``cluster/launch`` starts the workers.
"""

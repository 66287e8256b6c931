"""The user's loop: this process among the workers, its batches, and the learning rate."""

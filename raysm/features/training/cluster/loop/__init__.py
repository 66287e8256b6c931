"""The user's loop: this process among the workers, its batches and their order, and the learning rate."""

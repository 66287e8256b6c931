"""Forward and backward of one step, a module a mode, and what is done to the gradients before the optimizer."""

"""Forward and backward of one step, by mode, and what happens to the gradients before the optimizer's step."""

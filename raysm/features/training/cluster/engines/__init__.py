"""Forward and backward of one step, by mode, and the gradients before the optimizer's step."""

"""Save a training while it runs, and resume it."""

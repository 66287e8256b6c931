"""Saving a training while it goes on, and going on from what was saved."""

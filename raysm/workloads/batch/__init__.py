"""Batch inference: records are cut into pieces, predicted where there is a place, and written in their order."""

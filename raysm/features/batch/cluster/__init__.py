"""Batch inference: cut records into pieces, predict them on all instances, and write the parts in order."""

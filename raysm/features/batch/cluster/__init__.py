"""Batch inference: cut records into pieces, predict them, and write the parts in order.

All instances predict.
"""

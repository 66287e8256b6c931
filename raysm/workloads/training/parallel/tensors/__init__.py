"""Matrices cut over the workers of a tensor group: which, whether they can be, and what is drawn between them."""

"""The definition of the answer and what follows from it: scores, keys and ties, bounds with their proofs, the best k.

Nothing here reads a file, knows an instance or asks Ray: it is tried in milliseconds, and every other room uses it.
"""

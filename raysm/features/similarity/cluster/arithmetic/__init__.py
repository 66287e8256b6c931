"""The definition of the answer and what follows from it: scores, keys and ties, bounds with their proofs, the best k.

These modules read no input files and do not use Ray, so their tests take milliseconds. All other
packages of the similarity use them.
"""

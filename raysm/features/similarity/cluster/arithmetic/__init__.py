"""The definition of the answer: scores, keys and ties, bounds with their proofs.

These modules read no input files and do not use Ray, so their tests take milliseconds. All other
packages of the similarity use them.
"""

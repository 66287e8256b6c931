"""Deterministic simulations: a seed decides everything that happens, and reproduces it.

``python3 -m tests.simulate grid --seeds 1000`` searches for a seed that breaks a promise.
"""

"""Sweeps: many trials on one formed cluster.

Optuna chooses their parameters, Ray actors run them.
"""

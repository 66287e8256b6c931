"""Prices and costs of jobs; unknown ones stay unknown."""

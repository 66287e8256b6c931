"""Checks before a job is sent to AWS: ``raysm doctor``."""

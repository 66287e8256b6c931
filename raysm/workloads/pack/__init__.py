"""Rows of a grid that share a job."""

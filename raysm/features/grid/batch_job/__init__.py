"""Grids by AWS Batch: the controller as one Batch job, and rows as children of an array job."""

"""Fixtures of pytest for tests that run real jobs on an embedded SageMaker of their own."""

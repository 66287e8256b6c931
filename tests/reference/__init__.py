"""Writes the pages of ``docs/reference`` that follow from the code: ``python -m tests.reference``."""

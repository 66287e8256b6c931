"""Writes the parts of ``docs`` that follow from the code into the pages: ``python3 -m tests.reference``."""

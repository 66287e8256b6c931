"""Jupyter of a session's head, seen from here."""

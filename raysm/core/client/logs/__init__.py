"""Logs, metrics and their display."""

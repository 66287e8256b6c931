"""Formats that clients and instances share: paths, names, payloads, events, results."""

"""What both halves agree on: paths, names, the payload that travels, events, results."""

"""Results too large for the head: each instance owns ranges of rows, is sent what belongs to them, and writes them."""

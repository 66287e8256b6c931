"""How a training is to be cut over its workers, and which part each rank then has: arithmetic, without torch."""

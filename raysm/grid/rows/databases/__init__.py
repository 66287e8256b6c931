"""The databases that rows come from and results go to: a file a kind, and a line in ``opening``."""

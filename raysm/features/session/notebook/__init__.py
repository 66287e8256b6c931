"""``%raysm`` and ``%%raysm``: run the cells of a notebook in a session of a cluster."""

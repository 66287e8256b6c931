"""``%raysm`` and ``%%raysm``: a session of a cluster from the cells of a notebook."""

"""The table of experiments: ``raysm.jobs``, what a notebook shows of it, and how two jobs differ."""

"""Training inside the formed cluster; its face for users is ``raysm.training``."""

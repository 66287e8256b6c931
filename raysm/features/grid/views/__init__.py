"""Show grids: plans, screens and reports."""

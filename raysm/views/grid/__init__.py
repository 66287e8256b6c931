"""Grids as people see them: plans, screens and reports; what flows in are values, what flows out is text."""

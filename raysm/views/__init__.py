"""Plots, tables, cards and pages of jobs and grids, for notebooks and browsers."""

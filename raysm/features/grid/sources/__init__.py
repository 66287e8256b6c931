"""The rows of a grid: where they come from, what columns mean, and what of a job they fill."""

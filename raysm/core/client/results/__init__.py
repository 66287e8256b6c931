"""Results of jobs."""

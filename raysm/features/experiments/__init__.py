"""Jobs and trials as rows with parameters, metrics, times and cost; ended jobs are cached."""

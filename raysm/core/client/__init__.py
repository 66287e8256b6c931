"""The user's side, on a laptop or in a notebook: plan a job, send it, and fetch its result."""

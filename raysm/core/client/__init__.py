"""The user's side, on a laptop or in a notebook: plan a job, upload, send it, and fetch its result."""

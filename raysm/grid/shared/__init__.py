"""A grid that several machines can run: a copy of its store in S3, and the lease that lets one of them send jobs."""

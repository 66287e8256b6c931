"""A grid's store as other machines find it: copies of its file in S3, and the one lease that all machines share."""

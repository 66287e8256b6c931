"""Rows that are spread over the instances (ShardedByS3Key): no instance ever holds all of them."""

"""S3: objects, inputs, payloads, and the keys of each."""

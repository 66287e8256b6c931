"""Container images for AWS: which of AWS's own a job takes where none is named, and what is known of them."""

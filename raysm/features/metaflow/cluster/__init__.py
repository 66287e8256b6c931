"""What runs in the job of a step."""

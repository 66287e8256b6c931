"""What a training leaves: the folder that it ran in, its model, and the manifest of the result."""

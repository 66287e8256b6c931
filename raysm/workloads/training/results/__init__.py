"""What a training leaves: its model, the files of its working folder, and the manifest of the result."""

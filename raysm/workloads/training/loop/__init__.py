"""What a user's loop touches: who this process is, its batches and their order, and how far the training has come."""

"""Cut a model and its optimizer over the workers."""

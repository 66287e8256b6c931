"""The half on the laptop or in the notebook: plans a job, uploads, sends, and reads back what became of it."""

"""The file of a grid: its tables, and a class for the statements of each subject."""

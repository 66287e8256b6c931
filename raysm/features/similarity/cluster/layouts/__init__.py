"""The layout of the rows over the instances, and the tasks that follow from it."""

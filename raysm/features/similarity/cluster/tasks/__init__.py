"""Tasks: their context, the state that a process keeps between them, and the parts that they return."""

"""What every task is told, what its process keeps from one task to the next, and what it hands back."""

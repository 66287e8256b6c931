"""What a job will cost, and what it has cost: dated prices, the time that is billed, and nothing where nobody knows."""

"""What a job will cost and has cost: dated prices and billed time; unknown stays unknown."""

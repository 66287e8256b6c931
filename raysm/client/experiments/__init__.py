"""What ran, with which parameters, how well, for how much money: each job as one row, read once and kept."""

"""Systems Manager's sessions into the instances of a job: its API, its data channels, and the agents at their ends."""

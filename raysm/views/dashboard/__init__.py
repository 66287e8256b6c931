"""Ray's dashboard of a job, on this machine: ``open_dashboard`` takes a job and returns an address to look at."""

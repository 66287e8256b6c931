"""The command line ``raysm``: arguments and their help, requests from arguments, and printed output."""

import gc

# Nearly all objects of a command live to its end: looking for others took a sixth of the time to send a job.
gc.set_threshold(100_000)

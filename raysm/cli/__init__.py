"""The frame of the command line ``raysm``.

It has the parser, the options of jobs, the commands about any job, and output.

Features add their own commands to it: see ``raysm.core.features.Feature.commands``.
"""

import gc

# Nearly all objects of a command live to its end: looking for others took a sixth of the time to
# send a job.
gc.set_threshold(100_000)

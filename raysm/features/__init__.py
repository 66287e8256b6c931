"""What users do with a job: one folder for each feature.

In each folder, ``request.py`` is the workload, ``command_arguments.py`` and ``command.py`` are its
commands, ``client.py`` and ``result.py`` are what users call on the laptop; ``runner.py`` and
``cluster`` run in the job.
"""

import os

import raysm

# An instance has unpacked only the feature that it runs; others follow from the zip.
__path__.extend(os.path.join(folder, "features") for folder in raysm.__path__[1:])

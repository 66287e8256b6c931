"""The code that the driver runs on the formed cluster: blocks, gathering, and a runner for each kind of workload."""

import os

import raysm

# An instance has unpacked only the packages of its own workload; others follow from the zip.
__path__.extend(os.path.join(folder, "workloads") for folder in raysm.__path__[1:])

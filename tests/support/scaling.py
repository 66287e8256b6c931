"""Problems for the model of many instances: rows of 768 columns, ten neighbors each, on instances of eight cores."""

from types import SimpleNamespace

import numpy as np

from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.sizing.footprint import DENSE
from raysm.workloads.similarity.sizing.sizing import Sizing

ROWS = (10**6, 10**7, 10**8)
INSTANCES = (8, 64, 512)
CORES = 8
COLUMNS, NEIGHBORS = 768, 10


def sizing_for(rows, instances, columns=COLUMNS, k=NEIGHBORS, cores=CORES):
    """Return how a job would cut such rows."""
    matrix = SimpleNamespace(rows=rows, columns=columns, dtype=np.dtype(np.float32), elements=rows * columns)
    return Sizing(
        limits=TopK(k).limits,
        footprint=DENSE,
        queries=matrix,
        matrix=matrix,
        slots=cores * instances,
        instances=instances,
    )


def expected(rows, instances, **problem):
    """Return the terms of what a job would choose."""
    sizing = sizing_for(rows, instances, **problem)
    return sizing.expected(sizing.chosen_ranges)

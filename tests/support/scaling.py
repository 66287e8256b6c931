"""Problems for the model of many instances: rows of 768 columns, ten neighbors each, on instances of eight cores."""

from types import SimpleNamespace

import numpy as np

from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.sizing.footprint import DENSE, SPARSE
from raysm.workloads.similarity.sizing.sizing import Chunks, Sizing

ROWS = (10**6, 10**7, 10**8)
INSTANCES = (8, 64, 512)
CORES = 8
COLUMNS, NEIGHBORS = 768, 10


def rows_of(rows, columns=COLUMNS, elements=COLUMNS):
    """Return rows as a layout describes them; ``elements`` of each are stored."""
    return SimpleNamespace(rows=rows, columns=columns, dtype=np.dtype(np.float32), elements=rows * elements)


def sizing_for(rows, instances, columns=COLUMNS, k=NEIGHBORS, cores=CORES):
    """Return how a job would cut such rows."""
    return sizing_of(rows_of(rows, columns, columns), instances, k=k, cores=cores)


def sizing_of(matrix, instances, queries=None, k=NEIGHBORS, cores=CORES, **more):
    """Return how a job would cut rows that lie, look, or are compared in another way."""
    fields = {"footprint": DENSE, "limits": TopK(k).limits, "slots": cores * instances} | more
    return Sizing(queries=queries or matrix, matrix=matrix, instances=instances, **fields)


def kinds(instances):
    """Return what the model knows, by what the rows are: of ten million rows each."""
    dense, sparse = rows_of(10**7), rows_of(10**7, 30_000, 100)
    whole = sizing_of(dense, instances)
    # As ``ShardedRows`` has it: chunks of 32 MiB at most, and half of the rows come to each instance.
    chunks = Chunks(rows=7281, columns=7281, coming_bytes=10**7 * COLUMNS * 4 / 2)
    return {
        "dense": whole,
        "dense, shared out": sizing_of(dense, instances, chunks=chunks),
        "sparse, 100 of 30,000, at most": sizing_of(sparse, instances, footprint=SPARSE),
        "queries among 1e6 rows": sizing_of(rows_of(10**6), instances, queries=dense),
    }


def expected(rows, instances, **problem):
    """Return the terms of what a job would choose."""
    sizing = sizing_for(rows, instances, **problem)
    return sizing.expected(sizing.chosen_ranges)

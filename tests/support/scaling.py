"""Problems for the model of many instances: rows of 768 columns, ten neighbors each, on instances of eight cores."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.sizing.footprint import DENSE, SPARSE
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.sizing.spread import Spread

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


def spread_of(matrix, instances, cores=CORES):
    """Return how such rows lie where each instance has as many: half of them come to each."""
    row_bytes = matrix.columns * matrix.dtype.itemsize
    # Ray takes three tenths of the memory for its store, which is 4 GB for each core of most instances.
    return Spread.even(matrix.rows, row_bytes, instances, cores * instances, store_bytes=0.3 * 4e9 * cores)


def kinds(instances):
    """Return what the model knows, by what the rows are: of ten million rows each."""
    dense, sparse = rows_of(10**7), rows_of(10**7, 30_000, 100)
    whole = sizing_of(dense, instances)
    return {
        "dense": whole,
        "dense, shared out": sizing_of(dense, instances, spread=spread_of(dense, instances)),
        "sparse, 100 of 30,000, at most": sizing_of(sparse, instances, footprint=SPARSE),
        "queries among 1e6 rows": sizing_of(rows_of(10**6), instances, queries=dense),
    }


def dealt_by_instances(costs, instances):
    """Return the terms as they would be where each instance handed out its own share of the tasks."""
    return [
        replace(term, who="instances", seconds=term.seconds / instances) if term.name == "dispatch" else term
        for term in costs
    ]


def expected(rows, instances, **problem):
    """Return the terms of what a job would choose."""
    sizing = sizing_for(rows, instances, **problem)
    return sizing.expected(sizing.chosen_ranges)

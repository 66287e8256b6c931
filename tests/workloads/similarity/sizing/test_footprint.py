from types import SimpleNamespace

import numpy as np

from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.sizing.footprint import DENSE, GPU, OPERAND_BYTES, SPARSE
from raysm.workloads.similarity.sizing.sizing import Sizing


def rows(columns, dtype=np.float32, elements=1.0):
    return SimpleNamespace(rows=1000, columns=columns, dtype=np.dtype(dtype), elements=int(1000 * elements))


def test_long_rows_make_small_operands():
    assert DENSE.max_rows(rows(768)) * 768 * 12 <= OPERAND_BYTES
    assert DENSE.max_rows(rows(1 << 30, np.float64)) == 1


def test_sparse_rows_count_by_their_elements():
    assert SPARSE.max_rows(rows(10**6, elements=10)) == OPERAND_BYTES // 400
    assert SPARSE.max_rows(rows(10**6, elements=10**9)) == 1


def test_tiles_of_gpus_are_larger_but_not_those_that_may_overflow():
    assert GPU.max_rows(rows(768)) > DENSE.max_rows(rows(768))
    some = rows(8)
    asked = Sizing(limits=Threshold(np.float32(0.5)).limits, footprint=GPU, queries=some, matrix=some, slots=1)
    assert asked.max_tile_rows() == GPU.open_ended_rows

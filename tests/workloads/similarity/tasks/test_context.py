import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.tasks.context import Context, tile_rows
from tests.support.similarity import saved


def test_long_rows_make_small_tiles():
    assert tile_rows(1) == 4096
    assert tile_rows(1 << 20) == 8
    assert tile_rows(1 << 30) == 1


def test_an_instance_with_another_matrix_is_named(tmp_path):
    source = saved(np.ones((5, 2)), tmp_path)
    context = Context(
        source=source,
        rows=6,
        columns=2,
        dtype=np.dtype(np.float64),
        norms=np.ones(6),
        exponents=np.empty(0, dtype=np.int16),
    )
    with pytest.raises(InvalidInput, match=r"the matrix on algo-1 has the shape \(5, 2\), on the head \(6, 2\)"):
        context.open()

"""Where the rows of both channels lie, how all pairs are cut into tasks, and how their parts come in."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from raysm.workloads.similarity.layouts.layout import Layout, chunk_limits
from raysm.workloads.similarity.layouts.rows import WholeRows
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.reading.matrix import Place, Source
from raysm.workloads.similarity.sizing import DENSE, Sizing
from tests.support.similarity import saved


@pytest.fixture
def loaded(tmp_path):
    def load(rows, name):
        if isinstance(rows, np.ndarray):
            source = replace(saved(rows, tmp_path / name), channel=name)
        else:
            path = tmp_path / f"{name}.npz"
            scipy.sparse.save_npz(path, rows)
            source = Source(channel=name, place=Place(path, tmp_path / "scratch", "algo-1"))
        return WholeRows(source, source.open())

    return load


@pytest.mark.parametrize(
    ("queries", "matrix", "common"),
    [("float32", "float64", "float64"), ("int8", "uint8", "int16"), ("int64", "uint64", "float64")],
)
def test_both_are_read_as_one_type_that_holds_the_numbers_of_both(loaded, queries, matrix, common):
    layout = Layout(loaded(np.eye(3, dtype=matrix), "matrix"), loaded(np.eye(2, 3, dtype=queries), "queries"))
    assert (layout.matrix.dtype, layout.queries.dtype) == (common, common)
    assert (layout.matrix.rows, layout.queries.rows, layout.self_join) == (3, 2, False)


def test_elements_are_compared_only_where_both_are_sparse(loaded):
    sparse = scipy.sparse.random(3000, 5000, 0.0005, format="csr", random_state=1)
    rows = loaded(sparse, "matrix")
    assert Layout(rows).compares_elements()
    assert Layout(rows, loaded(sparse[:9], "sparse")).compares_elements()
    assert not Layout(rows, loaded(np.ones((2, 5000)), "dense")).compares_elements()


def limits_of(rows, instances, slots, store_bytes, block_rows=None, columns=768):
    """Return chunk rows and window of rows that lie alike on so many instances."""
    described = SimpleNamespace(rows=rows, columns=columns, dtype=np.dtype(np.float32), elements=rows * columns)
    sharded = SimpleNamespace(
        largest_share=rows // instances,
        row_bytes=4.0 * columns,
        store_bytes=store_bytes,
        slots={f"algo-{at}": slots for at in range(instances)},
        described=described,
    )
    layout = SimpleNamespace(operands=[sharded], slots=sharded.slots, matrix=described)
    sizing = Sizing(
        limits=TopK(10).limits,
        footprint=DENSE,
        queries=described,
        matrix=described,
        self_join=True,
        slots=slots * instances,
        block_rows=block_rows,
    )
    return chunk_limits(layout, sizing)


@pytest.mark.parametrize("slots", [2, 8, 96])
@pytest.mark.parametrize("store_bytes", [80e6, 5e9, 60e9])
@pytest.mark.parametrize("block_rows", [None, 500])
def test_the_chunks_that_are_there_at_a_time_take_half_of_the_smallest_store(slots, store_bytes, block_rows):
    (rows, columns), window = limits_of(10**6, 8, slots, store_bytes, block_rows)
    assert rows == columns >= 1
    assert window >= 2
    if window > 2:
        assert 3 * window * rows * 4 * 768 <= store_bytes / 2 * 1.01

"""What a task does with a pair of chunks, of which one came from another instance."""

from types import SimpleNamespace

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.layouts.rotation import portion
from raysm.workloads.similarity.reading.columns import Selection
from tests.support import reference
from tests.support.dense_rows import TELLING, kinds_of_rows
from tests.support.problems import Part, Problem
from tests.support.similarity import saved
from tests.support.solving import Sharded

KINDS = kinds_of_rows(rows=90)


def spread(rows, folder, queries=None, channels=("matrix",), threshold=0.2):
    """Rows in eight files on three instances, in chunks of 20, every pair computed in this process."""
    parts, looking = (
        None if some is None else [Part(one, "npy") for one in np.array_split(some, 8)] for some in (rows, queries)
    )
    problem = Problem(
        seed=1,
        kind="",
        parts=parts,
        queries=looking,
        sharded=True,
        k=4,
        threshold=threshold,
        selection=Selection(),
        block_rows=20,
        at_once=3,
        ranges=2,
    )
    return Sharded(problem, folder, channels)


@pytest.mark.parametrize("kind", TELLING)
def test_the_best_of_spread_rows_are_those_of_float64(kind, tmp_path):
    scores, indices = decode(spread(KINDS[kind], tmp_path).solve("topk"))
    expected = reference.neighbors(KINDS[kind], 4)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


@pytest.mark.parametrize("channels", [("matrix",), ("queries",), ("matrix", "queries")])
@pytest.mark.parametrize("kind", ["near ties", "zero rows"])
def test_queries_find_the_same_wherever_they_and_the_matrix_lie(kind, channels, tmp_path):
    queries, rows = KINDS[kind][:50], KINDS[kind][20:]
    solver = spread(rows, tmp_path, queries, channels)
    expected = reference.scores_between(queries, rows)
    order = np.stack([np.lexsort((np.arange(len(rows)), -row.astype(np.float64)))[:4] for row in expected])
    scores, indices = decode(solver.solve("topk"))
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(expected, order, axis=1))
    np.testing.assert_array_equal(solver.solve("full"), expected)
    pairs = np.argwhere(expected.astype(np.float64) >= 0.2).tolist()
    assert sorted(solver.solve("threshold")) == [(i, j, float(expected[i, j])) for i, j in pairs]


def test_a_portion_is_pickled_without_the_rows_beside_it(tmp_path):
    source = saved(KINDS["float32"], tmp_path)
    some = portion(source, SimpleNamespace(start=10, stop=30), np.dtype(np.float64))
    assert (some.rows, some.dtype) == (20, np.float64)
    np.testing.assert_array_equal(some.read(0, 20), KINDS["float32"][10:30].astype(np.float64))


def test_rows_that_went_away_while_the_job_ran_are_told_with_the_instance(tmp_path):
    source = saved(KINDS["float32"], tmp_path)
    with pytest.raises(InvalidInput, match="algo-3 has 90 rows, and had more: its files changed while the job ran"):
        portion(source, SimpleNamespace(start=80, stop=91, host="algo-3"), np.dtype(np.float32))

"""The engine that is always there; tests of all engines together are in test_engines."""

import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.engines.plain import ENTRIES, PlainEngine
from raysm.workloads.similarity.engines.protocol import Frame
from tests.support.dense_rows import best_of, kinds_of_rows, tiles
from tests.support.reference import score_rows

KINDS = kinds_of_rows(rows=170, columns=25)


def test_a_product_that_is_too_large_for_one_go_gives_the_same():
    # So many rows that the right side goes in steps of fewer than it has.
    count = 2100
    assert count * count > ENTRIES
    rows = np.random.default_rng(0).standard_normal((count, 8)).astype(np.float32)
    found = best_of(PlainEngine(), Frame.plain(8), rows, 3, [0, count])
    some = list(range(0, count, 300))
    scores = score_rows(rows, some)
    scores[np.arange(len(some)), some] = -np.inf
    np.testing.assert_array_equal(decode(found[some])[0], -np.sort(-scores, axis=1)[:, :3])


@pytest.mark.parametrize(
    ("kind", "integral"),
    [("all equal", False), ("duplicates", False), ("float32", False), ("int8", False), ("int8", True)],
)
def test_a_crowded_tile_is_decided_in_float64(kind, integral):
    rows = KINDS[kind]
    engine = PlainEngine()
    side = engine.prepare(tiles(rows)[0], Frame(centre=np.zeros(25), integral=integral))
    # Of so low a threshold nearly every pair is one.
    found = engine.pairs(side, side, np.float32(-0.99), same=True)
    scores = score_rows(rows, range(170))
    i, j = np.nonzero(np.triu(scores >= np.float32(-0.99), 1))
    np.testing.assert_array_equal(np.repeat(np.arange(170), np.diff(found.offsets)), i)
    np.testing.assert_array_equal(found.neighbors, j)
    np.testing.assert_array_equal(found.similarities, scores[i, j])

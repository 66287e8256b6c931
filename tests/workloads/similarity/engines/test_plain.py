"""The engine that is always there; tests of all engines together are in test_engines."""

import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, decode
from raysm.workloads.similarity.engines import Best, Frame
from raysm.workloads.similarity.engines.plain import PRODUCT_ENTRIES, PlainEngine
from tests.support.dense_rows import best_of, expected_keys, kinds_of_rows, tiles
from tests.support.reference import score_rows, scores_between

KINDS = kinds_of_rows(rows=170, columns=25)


def test_its_name_says_why_there_is_no_faster_one():
    assert PlainEngine().name == "float32 NumPy"
    assert PlainEngine("no C compiler").name == "float32 NumPy (no C compiler)"


def test_unit_rows_are_what_it_holds_ready():
    rows = KINDS["float64"]
    side = PlainEngine().prepare(tiles(rows)[0], Frame.plain(25))
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    np.testing.assert_allclose(side.prepared[0], unit, atol=1e-7)
    assert side.nbytes == 170 * 25 * 4


def test_a_product_that_is_too_large_for_one_go_gives_the_same():
    # So many rows that the right side goes in steps of fewer than it has.
    count = 2100
    assert count * count > PRODUCT_ENTRIES
    rows = np.random.default_rng(0).standard_normal((count, 8)).astype(np.float32)
    found = best_of(PlainEngine(), Frame.plain(8), rows, 3, [0, count])
    some = list(range(0, count, 300))
    scores = score_rows(rows, some)
    scores[np.arange(len(some)), some] = -np.inf
    np.testing.assert_array_equal(decode(found[some])[0], -np.sort(-scores, axis=1)[:, :3])


def test_only_the_left_rows_are_served_where_nobody_asks_for_the_right_ones():
    rows, engine = KINDS["float32"], PlainEngine()
    left, right = (engine.prepare(tile, Frame.plain(25)) for tile in tiles(rows, [0, 70, 170]))
    best = Best.empty(left.tile.norms, 5)
    engine.topk(left, right, best, None, same=True)
    expected = -np.sort(-scores_between(rows[:70], rows[70:]), axis=1)[:, :5]
    np.testing.assert_array_equal(decode(best.keys)[0], expected)


def test_a_row_for_which_nobody_is_looked_for_stays_empty():
    rows, engine = KINDS["float32"], PlainEngine()
    side = engine.prepare(tiles(rows)[0], Frame.plain(25))
    best = Best.empty(side.tile.norms, 5)
    best.lower_bounds[::2] = np.inf
    engine.topk(side, side, best, best, same=True)
    assert (best.keys[::2] == EMPTY_KEY).all()
    np.testing.assert_array_equal(best.keys[1::2], expected_keys(rows, 5)[1::2])


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

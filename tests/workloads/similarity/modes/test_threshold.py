"""The pairs of a tile, whatever the rows, the types and the engine are; and what becomes of one with too many."""

from dataclasses import replace

import numpy as np
import pytest

from raysm.workloads.row_blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.modes.full import full_tile
from raysm.workloads.similarity.modes.threshold import MAX_PAIRS, pieces, threshold_tile
from tests.support.dense_rows import TELLING, kinds_of_rows
from tests.support.reference import pairs, score_rows, scores_between
from tests.support.similarity import context_of, saved, two_matrices

KINDS = kinds_of_rows(rows=90)


def pairs_of(context, threshold, tile):
    part = threshold_tile(context, np.float32(threshold), tile)
    numbers = np.repeat(np.arange(tile.rows.start, tile.rows.stop), np.diff(part["offsets"]))
    found = list(zip(numbers.tolist(), part["neighbors"].tolist(), part["similarities"], strict=True))
    assert [pair[:2] for pair in found] == sorted(pair[:2] for pair in found)
    return found


def found_pairs(context, threshold, side):
    for tile in triangle(context.matrix.rows, side):
        yield from pairs_of(context, threshold, tile)


@pytest.mark.parametrize("name", TELLING)
@pytest.mark.parametrize("threshold", [0, 0.3, 1])
def test_the_pairs_are_those_of_float64(name, threshold, tmp_path):
    rows = KINDS[name]
    context = context_of(saved(rows, tmp_path))
    for side in (23, 90):
        assert sorted(found_pairs(context, threshold, side)) == pairs(rows, np.float32(threshold))


def test_a_tile_of_several_panels_has_its_pairs_in_order(tmp_path):
    rows = np.random.default_rng(0).standard_normal((5000, 8)).astype(np.float32)
    context = context_of(saved(rows, tmp_path))
    found = pairs_of(context, 0.9, TileBlock(RowBlock(0, 5000), RowBlock(0, 5000)))
    some = list(range(0, 5000, 250))
    scores = score_rows(rows, some)
    expected = [(i, j) for at, i in enumerate(some) for j in np.flatnonzero(scores[at] >= np.float32(0.9)) if i < j]
    assert [(i, j) for i, j, _ in found if i % 250 == 0] == expected


def test_an_overflowed_tile_is_given_up_and_its_pieces_hold_all_pairs(tmp_path):
    rows = np.ones((4200, 2), dtype=np.float32)
    context = context_of(saved(rows, tmp_path))
    tile = TileBlock(RowBlock(0, 4200), RowBlock(0, 4200))
    assert list(threshold_tile(context, np.float32(0.5), tile)) == ["overflowed"]
    found = [len(threshold_tile(context, np.float32(0.5), piece)["neighbors"]) for piece in pieces(tile)]
    assert sum(found) == 4200 * 4199 // 2
    assert max(found) <= MAX_PAIRS


@pytest.mark.parametrize("types", [("float64", "float32"), ("float16", "int64"), ("uint64", "int8")])
@pytest.mark.parametrize("engine", ["int", "float32", "NumPy"])
def test_queries_of_another_type_are_compared_as_exactly_by_every_engine(engine, types, tmp_path):
    rng = np.random.default_rng(0)
    rows = [np.abs(rng.integers(-90, 90, (count, 40)) * 0.7) for count in (20, 60)]
    rows[1][5:15] = rows[0][5:15]
    queries, matrix = (one.astype(dtype) for one, dtype in zip(rows, types, strict=True))
    context = replace(two_matrices(queries, matrix, tmp_path), engine=engine)
    scores, tile = scores_between(queries, matrix), TileBlock(RowBlock(0, 20), RowBlock(0, 60))
    least = np.sort(scores, axis=None)[-30]
    expected = [(int(i), int(j), scores[i, j]) for i, j in np.argwhere(scores >= least)]
    assert pairs_of(context, least, tile) == expected
    assert np.array_equal(full_tile(context, "float32", tile), scores)

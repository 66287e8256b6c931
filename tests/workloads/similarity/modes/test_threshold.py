"""The pairs of a tile, whatever the rows, the types and the engine are; and what becomes of one with too many."""

import numpy as np

from raysm.workloads.row_blocks import RowBlock, TileBlock
from raysm.workloads.similarity.modes.threshold import MAX_PAIRS, pieces, threshold_tile
from tests.support.reference import score_rows
from tests.support.similarity import context_of, saved


def pairs_of(context, threshold, tile):
    part = threshold_tile(context, np.float32(threshold), tile)
    numbers = np.repeat(np.arange(tile.rows.start, tile.rows.stop), np.diff(part["offsets"]))
    found = list(zip(numbers.tolist(), part["neighbors"].tolist(), part["similarities"], strict=True))
    assert [pair[:2] for pair in found] == sorted(pair[:2] for pair in found)
    return found


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

import numpy as np
import pytest

from raysm.workloads.blocks import TileBlock, row_blocks
from raysm.workloads.similarity.full import full_block
from raysm.workloads.similarity.threshold import threshold_block
from tests.support.reference import pairs, score_rows
from tests.support.similarity import context_of, kinds_of_rows, saved

KINDS = kinds_of_rows(rows=90)


def found_pairs(context, threshold, side):
    cuts = row_blocks(context.rows, side)
    for at, rows in enumerate(cuts):
        for columns in cuts[at:]:
            part = threshold_block(context, np.float32(threshold), TileBlock(rows, columns))
            numbers = np.repeat(np.arange(rows.start, rows.stop), np.diff(part.offsets))
            yield from zip(numbers.tolist(), part.neighbors.tolist(), part.similarities, strict=True)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("threshold", [-1, 0, 0.3, 1])
def test_the_pairs_are_those_of_float64(name, threshold, tmp_path):
    rows = KINDS[name]
    context = context_of(saved(rows, tmp_path))
    for side in (23, 90):
        assert sorted(found_pairs(context, threshold, side)) == pairs(rows, threshold)


def test_a_pair_that_is_exactly_at_the_threshold_is_kept(tmp_path):
    rows = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    context = context_of(saved(rows, tmp_path))
    assert [(i, j) for i, j, _ in found_pairs(context, 0.6, 3)] == [(0, 1), (1, 2)]


@pytest.mark.parametrize("name", KINDS)
def test_full_tiles_have_every_score(name, tmp_path):
    rows = KINDS[name]
    context = context_of(saved(rows, tmp_path))
    expected = score_rows(rows, range(len(rows)))
    for side in (40, 90):
        for above in row_blocks(len(rows), side):
            for beside in row_blocks(len(rows), side):
                tile = full_block(context, "float32", TileBlock(above, beside))
                assert np.array_equal(tile, expected[above.start : above.stop, beside.start : beside.stop])
                assert not np.signbit(tile[tile == 0]).any()


def test_float16_is_the_float32_score_rounded(tmp_path):
    rows = KINDS["float32"]
    context = context_of(saved(rows, tmp_path))
    everything = row_blocks(90, 90)[0]
    tile = full_block(context, "float16", TileBlock(everything, everything))
    assert tile.dtype == np.float16
    assert np.array_equal(tile, score_rows(rows, range(90)).astype(np.float16))

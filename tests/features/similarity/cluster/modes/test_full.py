"""All scores of a tile, and the file that strips and tiles of them are written into."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.features.similarity.cluster.modes.full import Full
from raysm.features.similarity.cluster.modes.mode import Ranges
from raysm.features.similarity.cluster.modes.threshold import MAX_PAIRS, pieces, threshold_tile
from raysm.features.similarity.cluster.tasks import TileTask
from raysm.features.similarity.cluster.tiling import split_rows, triangle
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows
from tests.support.similarity import context_of, owned_ranges, saved

KINDS = kinds_of_rows(rows=90)
MODE = Full("float32")


def written(folder, ranges, *, in_strips):
    """Have tasks fill the files of these ranges; return them."""
    context = context_of(saved(KINDS["float32"], folder))
    if in_strips:
        cuts = [rows for block in ranges for rows in split_rows(block, 25)]
        tasks = [TileTask(TileBlock(rows, RowBlock(0, 90)), False) for rows in cuts]
    else:
        tasks = [TileTask(tile, True) for tile in triangle(90, 40)]
    owned = owned_ranges(ranges, 90, in_strips=in_strips)
    mergers = [MODE.merger(one, folder, folder, None) for one in owned]
    for task in tasks:
        for at, piece in MODE.split(task, MODE.compare(context, task), ranges):
            mergers[at].take(str(task), piece)
    files = [merger.write(None, lambda rows: None) for merger in mergers]
    # Asked again, since another owner was lost, it is the same.
    assert files == [merger.write(None, lambda rows: None) for merger in mergers]
    for merger in mergers:
        merger.close()
    return files


@pytest.mark.parametrize("count", [1, 3])
def test_files_have_every_score_and_the_same_bytes_whichever_way_they_were_written(tmp_path, count):
    ranges = Ranges.even(90, count)
    found = {
        strips: written(tmp_path / str(strips), ranges, in_strips=strips)
        for strips in (True, False)
    }
    assert [(file.name, file.sha256, file.bytes) for file in found[True]] == [
        (file.name, file.sha256, file.bytes) for file in found[False]
    ]
    scores = np.concatenate([np.load(tmp_path / "True" / file.name) for file in found[True]])
    assert np.array_equal(scores, score_rows(KINDS["float32"], range(90)))


@pytest.mark.parametrize("cut", [Ranges.even, Ranges.falling])
@given(rows=st.integers(1, 500), count=st.integers(1, 40))
def test_every_row_is_in_one_range_and_no_range_is_empty(cut, rows, count):
    ranges = cut(rows, count)
    blocks = list(ranges)
    assert len(blocks) == len(ranges) == min(rows, count)
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(rows))
    assert all(block.rows for block in blocks)


def test_falling_ranges_have_about_as_many_pairs_with_later_rows():
    pairs = [
        sum(10_000 - 1 - row for row in range(block.start, block.stop))
        for block in Ranges.falling(10_000, 8)
    ]
    assert max(pairs) < 1.01 * min(pairs)


@given(
    rows=st.integers(1, 300),
    count=st.integers(1, 20),
    numbers=st.lists(st.integers(0, 299), unique=True).map(sorted),
)
def test_numbers_come_to_the_range_that_has_them(rows, count, numbers):
    ranges = Ranges.even(rows, count)
    blocks = list(ranges)
    some = np.array([number for number in numbers if number < rows], dtype=np.int64)
    dealt = list(ranges.of(some))
    assert [number for _, part in dealt for number in some[part].tolist()] == some.tolist()
    for at, part in dealt:
        assert len(some[part])
        assert blocks[at].start <= some[part][0]
        assert some[part][-1] < blocks[at].stop


def pairs_of(context, threshold, tile):
    part = threshold_tile(context, np.float32(threshold), tile)
    numbers = np.repeat(np.arange(tile.rows.start, tile.rows.stop), np.diff(part["offsets"]))
    found = list(
        zip(numbers.tolist(), part["neighbors"].tolist(), part["similarities"], strict=True)
    )
    assert [pair[:2] for pair in found] == sorted(pair[:2] for pair in found)
    return found


def test_a_tile_of_several_panels_has_its_pairs_in_order(tmp_path):
    rows = np.random.default_rng(0).standard_normal((5000, 8)).astype(np.float32)
    context = context_of(saved(rows, tmp_path))
    found = pairs_of(context, 0.9, TileBlock(RowBlock(250, 5000), RowBlock(0, 5000)))
    some = list(range(250, 5000, 250))
    scores = score_rows(rows, some)
    expected = [
        (i, j)
        for at, i in enumerate(some)
        for j in np.flatnonzero(scores[at] >= np.float32(0.9))
        if i < j
    ]
    assert [(i, j) for i, j, _ in found if i % 250 == 0] == expected


def test_an_overflowed_tile_is_given_up_and_its_pieces_hold_all_pairs(tmp_path):
    rows = np.ones((4200, 2), dtype=np.float32)
    context = context_of(saved(rows, tmp_path))
    tile = TileBlock(RowBlock(0, 4200), RowBlock(0, 4200))
    assert list(threshold_tile(context, np.float32(0.5), tile)) == ["overflowed"]
    found = [
        len(threshold_tile(context, np.float32(0.5), piece)["neighbors"]) for piece in pieces(tile)
    ]
    assert sum(found) == 4200 * 4199 // 2
    assert max(found) <= MAX_PAIRS

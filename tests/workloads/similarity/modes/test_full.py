"""All scores of a tile, and the file that strips and tiles of them are written into."""

from types import SimpleNamespace

import numpy as np
import pytest

from raysm.workloads.row_blocks import RowBlock, TileBlock, row_blocks
from raysm.workloads.similarity.arithmetic.tiling import row_cuts, triangle
from raysm.workloads.similarity.modes.full import Full, full_tile
from raysm.workloads.similarity.modes.mode import Ranges
from raysm.workloads.similarity.tasks.parts import TileTask
from tests.support.dense_rows import TELLING, kinds_of_rows
from tests.support.reference import score_rows
from tests.support.similarity import context_of, owned_ranges, saved

KINDS = kinds_of_rows(rows=90)
MODE = Full("float32")


@pytest.mark.parametrize("name", TELLING)
def test_full_tiles_have_every_score(name, tmp_path):
    rows = KINDS[name]
    context = context_of(saved(rows, tmp_path))
    expected = score_rows(rows, range(len(rows)))
    for side in (40, 90):
        for above in row_blocks(len(rows), side):
            for beside in row_blocks(len(rows), side):
                tile = full_tile(context, "float32", TileBlock(above, beside))
                assert np.array_equal(tile, expected[above.start : above.stop, beside.start : beside.stop])
                assert not np.signbit(tile[tile == 0]).any()


def test_float16_is_the_float32_score_rounded(tmp_path):
    rows = KINDS["float32"]
    context = context_of(saved(rows, tmp_path))
    everything = row_blocks(90, 90)[0]
    tile = full_tile(context, "float16", TileBlock(everything, everything))
    assert tile.dtype == np.float16
    assert np.array_equal(tile, score_rows(rows, range(90)).astype(np.float16))


def written(folder, ranges, *, in_strips):
    """Have tasks fill the files of these ranges; return them."""
    context = context_of(saved(KINDS["float32"], folder))
    if in_strips:
        cuts = [rows for block in ranges for rows in row_cuts(block, 25)]
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
    found = {strips: written(tmp_path / str(strips), ranges, in_strips=strips) for strips in (True, False)}
    assert [(file.name, file.sha256, file.bytes) for file in found[True]] == [
        (file.name, file.sha256, file.bytes) for file in found[False]
    ]
    scores = np.concatenate([np.load(tmp_path / "True" / file.name) for file in found[True]])
    assert np.array_equal(scores, score_rows(KINDS["float32"], range(90)))


def described(columns, rows=1000):
    return SimpleNamespace(rows=rows, columns=columns, elements=rows * columns)


@pytest.mark.parametrize(
    ("columns", "dtype", "slots", "kept"),
    [
        (128, "float32", 2, False),
        (1024, "float32", 2, True),
        # Half the bytes for the same work.
        (600, "float32", 2, False),
        (600, "float16", 2, True),
        # The head's disk is no faster for more slots, and the computing is.
        (1024, "float32", 64, False),
    ],
)
def test_a_part_is_kept_where_it_takes_longer_to_compute_than_to_be_brought_back(columns, dtype, slots, kept):
    assert Full(dtype).is_worth_keeping(described(columns), slots) is kept

"""All scores of a tile, and the file that strips and tiles of them are written into."""

import numpy as np
import pytest

from raysm.workloads.row_blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic.tiling import row_cuts, triangle
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.mode import Ranges
from raysm.workloads.similarity.tasks.parts import TileTask
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows
from tests.support.similarity import context_of, owned_ranges, saved

KINDS = kinds_of_rows(rows=90)
MODE = Full("float32")


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

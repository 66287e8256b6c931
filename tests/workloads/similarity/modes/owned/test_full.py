"""The pieces of the full matrix, and the owners that they come to, without any cluster."""

import hashlib
from contextlib import closing

import numpy as np
import pytest

from raysm.contract.store import UNFINISHED
from raysm.workloads.blocks import RowBlock, TileBlock, row_blocks
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.owned.full import OwnedFull
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows, scores_between
from tests.support.similarity import context_of, range_files, saved, two_matrices

ROWS = kinds_of_rows(rows=90)["duplicates"]
SCORES = score_rows(ROWS, range(90))
STRIPS = [FreeTile(TileBlock(rows, RowBlock(0, 90)), False) for rows in row_blocks(90, 25)]
TILES = [FreeTile(tile, True) for tile in tiling.triangle(90, 20)]


class Shuffled(FreeTile):
    """A tile of rows of which every second lies before the others: no two numbers are consecutive."""

    __slots__ = ()

    def row_numbers(self, places):
        return np.where(places < 45, 2 * places, 2 * (places - 45) + 1)

    column_numbers = row_numbers


def owned_of(dtype="float32"):
    return OwnedFull(columns=90, dtype=dtype, max_tile_rows=40)


def sent(owned, tasks, context, ranges):
    """Compare tile by tile; yield what each owner is sent."""
    for task in tasks:
        task = owned.informed(task, ask=None)
        for at, piece in owned.split(task, Full(owned.dtype).compare(context, task), ranges):
            yield at, str(task), piece


def owned_scores(folder, tasks, context, count, dtype="float32"):
    """Compare tile by tile, and have so many owners write what they were sent; return the files, and all scores."""
    owned = owned_of(dtype)
    ranges = owned.ranges(context.queries.rows, count)
    mergers = [owned.merger(file, folder, None) for file in range_files(ranges, folder / "result")]
    for at, name, piece in sent(owned, tasks, context, ranges):
        mergers[at].take(name, piece)
    files = [merger.write(None) for merger in mergers]
    for merger in mergers:
        merger.close()
    return files, np.concatenate([np.load(folder / "result" / file.name) for file in files])


@pytest.mark.parametrize("count", [1, 3, 90])
@pytest.mark.parametrize("tasks", [STRIPS, TILES, list(reversed(TILES))], ids=["strips", "tiles", "last tile first"])
def test_ranges_hold_every_score_of_their_rows(tmp_path, tasks, count):
    files, scores = owned_scores(tmp_path, tasks, context_of(saved(ROWS, tmp_path)), count)
    assert [file.name for file in files] == [f"similarity/part-{at:03d}.npy" for at in range(count)]
    assert np.array_equal(scores, SCORES)


def test_a_file_is_what_the_manifest_says_of_it(tmp_path):
    for file in owned_scores(tmp_path, TILES, context_of(saved(ROWS, tmp_path)), 4)[0]:
        path = tmp_path / "result" / file.name
        assert (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == (file.bytes, file.sha256)
        assert file.shape == np.load(path).shape


def test_scores_are_written_where_their_rows_belong_wherever_those_lie(tmp_path):
    # Of each half by itself, as of an instance's share: within it the numbers rise.
    tasks = [Shuffled(tile, True) for tile in tiling.triangle(90, 15)]
    order = tasks[0].row_numbers(np.arange(90))
    _, scores = owned_scores(tmp_path, tasks, context_of(saved(ROWS, tmp_path)), 4)
    assert np.array_equal(scores[np.ix_(order, order)], SCORES)


def test_queries_have_a_row_each(tmp_path):
    context = two_matrices(ROWS[:50], ROWS, tmp_path)
    tasks = [FreeTile(tile, False) for tile in tiling.rectangle(50, 90, 20, 40)]
    assert np.array_equal(owned_scores(tmp_path, tasks, context, 3)[1], scores_between(ROWS[:50], ROWS))


def test_float16_stays_half_the_bytes(tmp_path):
    files, scores = owned_scores(tmp_path, TILES, context_of(saved(ROWS, tmp_path)), 2, "float16")
    assert np.array_equal(scores, SCORES.astype(np.float16))
    assert files[0].bytes < 45 * 90 * 2 + 200


def test_a_range_that_was_written_says_the_same_when_it_is_asked_again(tmp_path):
    owned, context = owned_of(), context_of(saved(ROWS, tmp_path))
    ranges = owned.ranges(90, 1)
    with closing(owned.merger(*range_files(ranges, tmp_path / "result"), tmp_path, None)) as merger:
        for _, name, piece in sent(owned, STRIPS, context, ranges):
            merger.take(name, piece)
        assert merger.write(None) == merger.write(None)
    assert (tmp_path / "result" / "similarity" / "part-000.npy").exists()


def test_what_a_killed_owner_left_gives_way_to_the_next_one_and_others_keep_theirs(tmp_path):
    first, second = range_files([RowBlock(0, 45), RowBlock(45, 90)], tmp_path / "result")
    mergers = [owned_of().merger(file, tmp_path, None) for file in (first, second)]
    # The first was killed: nobody has closed it.
    again = owned_of().merger(first, tmp_path, None)
    growing = sorted(path.name for path in (tmp_path / "result" / "similarity").iterdir())
    assert [name[:13] for name in growing] == [".part-000.npy", ".part-001.npy"]
    assert all(map(UNFINISHED.fullmatch, growing))
    for merger in (*mergers, again):
        merger.close()
    assert list((tmp_path / "result" / "similarity").iterdir()) == []


def test_a_range_says_what_its_disk_needs(tmp_path):
    with closing(owned_of().merger(*range_files([RowBlock(0, 10)], tmp_path), tmp_path, None)) as merger:
        assert (merger.result_bytes, merger.scratch_bytes) == (10 * 90 * 4 + 128, 0)
        assert not merger.keeps_pieces

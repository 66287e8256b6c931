"""All scores of a tile, and the file that strips and tiles of them are written into."""

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from raysm.contract.result import ResultFile
from raysm.contract.store import UNFINISHED
from raysm.workloads.blocks import RowBlock, TileBlock, row_blocks
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.similarity.arithmetic.row_order import RowOrder
from raysm.workloads.similarity.modes.full import Full, full_tile
from raysm.workloads.similarity.runs import Folders
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows
from tests.support.similarity import context_of, run_of, saved

KINDS = kinds_of_rows(rows=90)
MODE = Full("float32")
SIZING = SimpleNamespace(max_tile_rows=lambda: 40)


@pytest.mark.parametrize("name", KINDS)
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


@pytest.fixture
def run(tmp_path):
    """A run of 90 rows that look for neighbors among themselves."""
    return run_of(KINDS["float32"], tmp_path, full=True)


def cut_of(in_strips):
    if in_strips:
        tasks = [FreeTile(TileBlock(rows, RowBlock(0, 90)), False) for rows in row_blocks(90, 25)]
    else:
        blocks = row_blocks(90, 40)
        tasks = [
            FreeTile(TileBlock(above, beside), True)
            for above in blocks
            for beside in blocks
            if above.start <= beside.start
        ]
    return SimpleNamespace(tasks=tasks, row_order=RowOrder.identity(90), in_strips=in_strips)


def computed(run, task):
    return Part(arrays=MODE.compare(run.context, task), peaks={}, seconds=0.0)


def collector_of(run, tiles):
    return MODE.collect(run, tiles, MODE.record(run, "full"), SIZING)


def collected(run, tiles):
    """Do all tasks; return the files."""
    with closing(collector_of(run, tiles)) as collector:
        for task in tiles.tasks:
            assert collector.take(task, computed(run, replace(task, hint=collector.hint(task)))) == ()
        return collector.gather(ProgressThrottle("gather", 90, "rows", lambda event: None))


@pytest.mark.parametrize("in_strips", [True, False])
def test_the_file_has_every_score_whichever_way_it_was_written(run, in_strips):
    (file,) = collected(run, cut_of(in_strips))
    assert isinstance(file, ResultFile)
    assert (file.name, file.shape) == ("similarity.npy", (90, 90))
    scores = np.load(run.folders.result / "similarity.npy")
    assert np.array_equal(scores, score_rows(KINDS["float32"], range(90)))


def test_both_ways_write_the_same_bytes_and_digest_them_alike(run, tmp_path):
    other = replace(run, folders=Folders(result=tmp_path / "other", records=tmp_path / "other-records"))
    other.folders.result.mkdir()
    (first,), (second,) = (collected(one, cut_of(strips)) for one, strips in ((run, True), (other, False)))
    assert (first.sha256, first.bytes) == (second.sha256, second.bytes)


@pytest.mark.parametrize("in_strips", [True, False])
def test_what_grows_lies_beside_its_place_and_never_among_what_lasts(run, in_strips):
    tiles = cut_of(in_strips)
    with closing(collector_of(run, tiles)) as collector:
        collector.take(tiles.tasks[0], computed(run, replace(tiles.tasks[0], hint=collector.hint(tiles.tasks[0]))))
        (growing,) = run.folders.result.iterdir()
        assert UNFINISHED.fullmatch(growing.name)
        assert [path for path in run.folders.records.rglob("*") if path.is_file()] == []
    # It ended before it was whole.
    assert list(run.folders.result.iterdir()) == []


def test_parts_are_recorded_where_the_record_outlives_the_head_and_nowhere_else(run):
    tiles = cut_of(in_strips=True)
    passing = replace(run, folders=replace(run.folders, lasting=False))
    for one, expected in ((run, True), (passing, False)):
        with closing(collector_of(one, tiles)) as collector:
            assert (collector.recorded is not None) == expected


@pytest.mark.parametrize("in_strips", [True, False])
def test_parts_that_a_record_gives_back_make_the_same_file(run, in_strips):
    tiles = cut_of(in_strips)
    (expected,) = collected(run, tiles)
    with closing(collector_of(run, tiles)) as collector:
        for task in tiles.tasks:
            collector.recorded.save(task, computed(run, task))
            collector.take(task, collector.recorded.load(task, mapped_bytes=0))
        (file,) = collector.gather(ProgressThrottle("gather", 90, "rows", lambda event: None))
    assert file == expected


def test_queries_make_strips_of_their_own_number():
    sizing = SimpleNamespace(
        matrix=SimpleNamespace(rows=7),
        queries=SimpleNamespace(rows=5),
        chosen_ranges=0,
        strip_rows=lambda record, row_bytes: row_bytes // 14,
    )
    strips = MODE.tiles(sizing, None, self_join=True)
    assert [(task.tile.rows.start, task.tile.rows.stop) for task in strips] == [(0, 2), (2, 4), (4, 5)]
    assert {(task.tile.columns.start, task.tile.columns.stop) for task in strips} == {(0, 7)}
    assert not any(task.mirrored for task in strips)


def test_strips_of_owned_rows_come_range_by_range_in_turn_and_never_have_rows_of_two():
    sizing = SimpleNamespace(
        matrix=SimpleNamespace(rows=12),
        queries=SimpleNamespace(rows=12),
        chosen_ranges=3,
        strip_rows=lambda record, row_bytes: 3,
    )
    strips = MODE.tiles(sizing, None, self_join=True)
    assert [(task.tile.rows.start, task.tile.rows.stop) for task in strips] == [
        (0, 3),
        (4, 7),
        (8, 11),
        (3, 4),
        (7, 8),
        (11, 12),
    ]


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


def test_where_instances_keep_parts_each_on_its_own_disk_more_is_worth_keeping():
    assert not MODE.is_worth_keeping(described(128), 2, writers=1)
    assert MODE.is_worth_keeping(described(128), 2, writers=8)


def test_of_sparse_rows_the_elements_that_they_have_count_and_not_their_columns():
    rows = SimpleNamespace(rows=1000, columns=50_000, elements=1000 * 50)
    assert not MODE.is_worth_keeping(rows, 2)


def test_what_is_kept_is_written_twice_and_estimated_so():
    assert MODE.written_bytes(described(128), 2) == 1000 * 1000 * 4
    assert MODE.written_bytes(described(4096), 2) == 2 * 1000 * 1000 * 4

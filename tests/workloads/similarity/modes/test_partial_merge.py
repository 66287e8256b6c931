import os
import signal
import time
import tracemalloc
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from raysm.contract.events import Progress, State
from raysm.errors import BlockFailed, InvalidInput
from raysm.request import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import decode, encode
from raysm.workloads.similarity.modes.partial_merge import TileGroup, TileGroups
from raysm.workloads.similarity.modes.topk_tile import TileBounds, topk_tile
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.run import Choices, Folders, run
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors
from tests.support.similarity import context_of, saved

KINDS = kinds_of_rows()
ROWS = kinds_of_rows(rows=600)["near ties"]
GROUP = TileBlock(RowBlock(0, 4), RowBlock(4, 8))
SQUARES = [TileBlock(RowBlock(0, 70), RowBlock(0, 70)), TileBlock(RowBlock(0, 70), RowBlock(70, 150))]


class Stopped(Exception):
    """Stands for the end of the head in the middle of the work."""


def untold(tile):
    rows, columns = (np.full(block.rows, -np.inf, dtype=np.float32) for block in (tile.rows, tile.columns))
    return FreeTile(tile, True, TileBounds(rows, columns if tile.rows != tile.columns else columns[:0]))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("tile", SQUARES, ids=["diagonal", "beside"])
def test_a_group_finds_what_one_task_of_all_its_rows_finds(name, tile, tmp_path):
    context = context_of(saved(KINDS[name], tmp_path))
    expected = topk_tile(context, 5, untold(tile))
    group = TileGroup(5, untold(tile))
    for cut in tiling.cut(tile, 17):
        group.take(cut, topk_tile(context, 5, group.task(cut)))
    found = group.arrays()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[array], expected[array]) for array in expected)


def test_a_tile_is_told_the_better_of_what_the_head_and_the_group_know():
    tile = TileBlock(RowBlock(10, 14), RowBlock(20, 24))
    bounds = np.array([0.5, 0.1, 0.5, -np.inf], dtype=np.float32)
    told = FreeTile(tile, True, TileBounds(bounds, np.zeros(4, dtype=np.float32)))
    group = TileGroup(1, told)
    keys = encode(np.array([0.3, 0.3, 0.7], dtype=np.float32), np.array([20, 21, 10]))
    group.take(
        TileBlock(RowBlock(10, 12), RowBlock(20, 22)),
        {
            "counts": np.array([1, 1]),
            "keys": keys[:2],
            "column_counts": np.array([0, 1]),
            "column_keys": keys[2:],
        },
    )
    dealt = group.task(TileBlock(RowBlock(11, 13), RowBlock(20, 22)))
    assert dealt.hint.row_bounds.tolist() == [np.float32(0.3), 0.5]
    assert dealt.hint.column_bounds.tolist() == [0, np.float32(0.7)]


def test_who_is_below_the_floor_that_the_head_told_does_not_travel():
    group = TileGroup(
        2, FreeTile(GROUP, True, TileBounds(np.full(4, 0.5, dtype=np.float32), np.full(4, 0.9, dtype=np.float32)))
    )
    scores = np.array([0.8, 0.4], dtype=np.float32)
    arrays = {"counts": np.array([2, 0, 0, 0]), "keys": encode(scores, np.array([5, 4]))}
    group.take(
        GROUP, arrays | {"column_counts": np.array([0, 1, 0, 0]), "column_keys": encode(scores[:1], np.zeros(1))}
    )
    found = group.arrays()
    assert found["counts"].tolist() == [1, 0, 0, 0]
    assert decode(found["keys"])[1].tolist() == [5]
    assert not found["column_counts"].any()


def test_merging_takes_the_memory_that_is_foreseen():
    rows, k = 20_000, 10
    tile = TileBlock(RowBlock(0, rows), RowBlock(rows, 2 * rows))
    part = {
        f"{side}{name}": array
        for side in ("", "column_")
        for name, array in (
            ("counts", np.full(rows // 20, k, dtype=np.uint32)),
            ("keys", np.sort(np.random.default_rng(0).integers(0, 2**60, (rows // 20, k), dtype=np.uint64)).ravel()),
        )
    }
    deal = untold(tile)
    tracemalloc.start()
    try:
        group = TileGroup(k, deal)
        for cut in tiling.cut(tile, rows // 20):
            group.take(cut, part)
        begun, most = tracemalloc.get_traced_memory()
        group.arrays()
        _, handed_back = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    best = 2 * rows * 8 * k
    assert most <= 1.1 * (best + 4 * 8 * k * rows // 20)
    assert begun <= 1.1 * best
    assert handed_back <= 2.5 * best


def source_of(folder):
    return Source(channel="matrix", place=Place(folder, folder, "algo-1"))


def merged(task, folder, record=None, in_flight=4):
    """Yield the parts of the groups of 16 rows, in tiles of 2 and groups of 8."""
    tasks = list(map(untold, tiling.triangle(16, 8)))
    groups = TileGroups(k=1, source=source_of(folder), tile_rows=2, tasks=tasks, at_once=2, in_flight=in_flight)
    return map_blocks(groups.function(partial(task, folder)), tasks, num_cpus=0, in_flight=2, record=record)


def nothing_found(deal):
    counts = np.zeros(deal.tile.rows.rows, dtype=np.uint32)
    arrays = {"counts": counts, "keys": np.empty(0, dtype=np.uint64)}
    return Part(arrays=arrays, peaks={f"algo-{deal.tile.rows.start}": 1}, seconds=1.0, engines=("a",))


def called(folder, deal):
    (folder / f"{deal} {time.monotonic_ns()}").touch()
    return nothing_found(deal)


def broken(folder, deal):
    (folder / f"{deal} {time.monotonic_ns()}").touch()
    raise ArithmeticError("torn")


def refused(folder, deal):
    raise InvalidInput(f"{deal} holds nothing")


def kills_the_merging(folder, deal):
    called(folder, deal)
    killed = folder / "killed"
    if deal.tile.columns.stop == 16 and not killed.exists():
        for process in psutil.process_iter(["cmdline"]):
            if " ".join(process.info["cmdline"] or ()).startswith("ray::rows 0 to 7, columns 8 to 15"):
                killed.touch()
                process.kill()
    return nothing_found(deal)


def kills_itself(folder, deal):
    killed = folder / "killed"
    if deal.tile.columns.stop == 16 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return called(folder, deal)


def one_of_the_last_sleeps(folder, deal):
    # One CPU is left for the tiles of the groups before.
    if deal.tile == TileBlock(RowBlock(0, 2), RowBlock(8, 10)):
        (folder / f"{os.getpid()}").touch()
        time.sleep(300)
    return nothing_found(deal)


def test_each_tile_is_computed_once_and_its_part_is_of_all_who_did(ray_here, tmp_path):
    parts = dict(merged(called, tmp_path))
    assert len(parts) == 3
    assert len(list(tmp_path.iterdir())) == 8 * 9 // 2
    assert sum(part.seconds for part in parts.values()) == 36
    assert {host for part in parts.values() for host in part.peaks} == {f"algo-{row}" for row in range(0, 16, 2)}
    assert all(part.engines == ("a",) for part in parts.values())


def test_a_tile_that_fails_ends_the_work_with_its_name_and_is_not_tried_anew_by_each(ray_here, tmp_path):
    with pytest.raises(BlockFailed, match=r"ArithmeticError: torn") as failed:
        list(merged(broken, tmp_path, in_flight=1))
    tries = [file.name for file in tmp_path.iterdir() if file.name.startswith(f"{failed.value.block} ")]
    assert len(tries) == failed.value.attempts == 1


def test_bad_input_of_a_tile_is_said_at_once(ray_here, tmp_path):
    with pytest.raises(InvalidInput, match=r"^rows \d+ to \d+, columns \d+ to \d+ holds nothing$"):
        list(merged(refused, tmp_path))


def test_a_group_whose_process_was_killed_is_merged_again(ray_here, tmp_path):
    assert len(dict(merged(kills_the_merging, tmp_path))) == 3
    assert (tmp_path / "killed").exists()


def test_of_a_process_that_was_killed_only_its_tile_is_computed_again(ray_here, tmp_path):
    assert len(dict(merged(kills_itself, tmp_path, in_flight=1))) == 3
    assert (tmp_path / "killed").exists()
    assert len(list(tmp_path.iterdir())) == 36 + 1


def test_when_the_work_ends_early_no_tile_runs_on(ray_here, tmp_path):
    with closing(merged(one_of_the_last_sleeps, tmp_path)) as parts:
        next(parts)
        next(parts)
        deadline = time.monotonic() + 120
        while not list(tmp_path.iterdir()):
            assert time.monotonic() < deadline, "no tile began"
            time.sleep(0.05)
    deadline = time.monotonic() + 120
    while any(psutil.pid_exists(int(file.name)) for file in tmp_path.iterdir()):
        assert time.monotonic() < deadline, "a tile's task still runs"
        time.sleep(0.05)


def go(folder: Path, merged_tiles=None, emit_event=lambda event: None, rows=ROWS, **workload):
    return run(
        Similarity(top_k=7, **workload),
        job="job",
        source=saved(rows, folder),
        folders=Folders(result=folder / "result", records=folder / "records"),
        emit_event=emit_event,
        choices=Choices(merged_tiles=merged_tiles),
    )


@pytest.fixture(scope="module")
def merged_by_the_head(ray_here, tmp_path_factory):
    """The digest of the result whose parts the head merges, of the same tiles."""
    return go(tmp_path_factory.mktemp("head") / "one", 1, block_rows=40).files[0].sha256


@pytest.mark.parametrize("merged_tiles", [2, 3, 32])
def test_the_neighbors_are_those_of_float64_wherever_parts_are_merged(tmp_path, merged_tiles, merged_by_the_head):
    manifest = go(tmp_path, merged_tiles, block_rows=40)
    table = pq.read_table(tmp_path / "result" / "neighbors.parquet")
    expected = neighbors(ROWS, 7)
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1])
    assert manifest.files[0].sha256 == merged_by_the_head
    groups = -(-15 // merged_tiles)
    assert manifest.measures["blocks"] == groups * (groups + 1) / 2
    assert manifest.notes[0].startswith("the parts of 120 tiles are merged on the instances, in ")


def test_on_one_instance_the_head_merges_all(ray_here, tmp_path):
    manifest = go(tmp_path, block_rows=40)
    assert (manifest.measures["blocks"], manifest.notes) == (120, ())


def test_a_restarted_job_computes_no_group_that_is_recorded(tmp_path, merged_by_the_head):
    recorded = {}

    def stop(event):
        if isinstance(event, Progress) and event.phase == "similarity" and event.done >= 300:
            raise Stopped

    def look(event):
        if isinstance(event, State) and event.name == "gathering":
            recorded["after"] = files()

    def files():
        found = (tmp_path / "records").rglob("*")
        return {file: file.stat().st_mtime_ns for file in found if file.is_file()}

    with pytest.raises(Stopped):
        go(tmp_path, 3, stop, block_rows=40)
    recorded["before"] = files()
    # What the first run chose holds, whatever the model says of the cluster of the second.
    manifest = go(tmp_path, None, look, block_rows=40)
    assert manifest.files[0].sha256 == merged_by_the_head
    assert manifest.measures["blocks"] == 15
    assert manifest.measures["blocks_found"] >= 5
    assert recorded["before"].items() <= recorded["after"].items()

"""Results whose ranges of rows have owners, the head or actors on a Ray of one instance: their content is the same."""

import os
import time
from contextlib import closing, suppress

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from raysm.contract.events import Progress
from raysm.contract.result import Manifest
from raysm.errors import BlockFailed
from raysm.request import Similarity
from raysm.workloads.row_blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic.tiling import RowOrder
from raysm.workloads.similarity.modes.mode import RangeMerger
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.owners import MAX_RESTARTS, Collector
from raysm.workloads.similarity.reading.matrix import Place, Source
from raysm.workloads.similarity.run import run
from raysm.workloads.similarity.runs import Folders
from raysm.workloads.similarity.tasks.parts import TileTask
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors, pairs, score_rows
from tests.support.similarity import queries_of, run_of, saved

ROWS = kinds_of_rows(rows=600)["duplicates"]
"""Zero rows and rows that are alike are among them."""


WHOLE = TileBlock(RowBlock(0, 600), RowBlock(0, 600))


class Stopped(Exception):
    """Stands for the end of a head in the middle of the work."""


def go(folder, ranges, emit_event=lambda event: None, **more):
    return go_on(folder, ranges, emit_event, source=saved(ROWS, folder), **more)


def go_on(folder, ranges, emit_event=lambda event: None, *, source, queries=None, lasting=True, **workload):
    return run(
        Similarity(parts=ranges, **workload),
        job="job",
        source=source,
        folders=Folders(result=folder / "result", records=folder / "records", lasting=lasting),
        emit_event=emit_event,
        queries=queries,
    )


def contents(folder, source, count, queries=None, **workload):
    """Have a result merged by the head, and by owners; return both as tables."""
    go_on(folder / "one", 1, source=source, queries=queries, **workload)
    manifest = go_on(folder / "many", count, source=source, queries=queries, **workload)
    assert len(manifest.files) == count
    tables = [folder / "one" / "result" / "neighbors.parquet", folder / "many" / "result" / "neighbors"]
    return [pq.read_table(table) for table in tables]


def at_rows(rows, act):
    """Return what takes events, and acts once when so many rows are done."""
    acted = []

    def emit_event(event):
        if not acted and isinstance(event, Progress) and event.phase == "similarity" and event.done >= rows:
            acted.append(True)
            act()

    return emit_event


def files_below(folder):
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def stop():
    raise Stopped


def owners():
    """Return the processes of the owners of this Ray, which this process has started."""
    return [
        process for process in psutil.Process().children(recursive=True) if title_of(process).startswith("ray::Owner")
    ]


def title_of(process):
    """Return what a process calls itself; nothing of one that has ended."""
    try:
        return "".join(process.cmdline()[:1])
    except psutil.NoSuchProcess:
        # Also of one whose parent has not yet taken notice: a zombie is such a one to psutil.
        return ""


def end_an_owner():
    """Kill one of the owners, as the loss of its instance would."""
    end(owners()[:1])


def end_owners():
    """Kill all owners."""
    end(owners())


def end(processes):
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


# An owner is a process, and takes more than half a second of a core: here are three, where one lies between two;
# elsewhere two or one, where that shows the same.
@pytest.mark.parametrize("ranges", [3, pytest.param(7, marks=pytest.mark.soak)])
def test_ranges_hold_the_neighbors_of_float64_row_by_row_and_the_content_of_the_one_file(ray_here, tmp_path, ranges):
    manifest = go(tmp_path, ranges, top_k=7, block_rows=100)
    table = pq.read_table(tmp_path / "result" / "neighbors")
    expected = neighbors(ROWS, 7)
    assert table["row"].to_pylist() == list(range(600))
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1])
    assert [file.name for file in manifest.files] == [
        f"neighbors/part-{at:05d}-of-{ranges:05d}.parquet" for at in range(ranges)
    ]
    assert sum(file.shape[0] for file in manifest.files) == 600
    # Equal as tables: the type of each column too.
    go(tmp_path / "one", 1, top_k=7)
    assert table == pq.read_table(tmp_path / "one" / "result" / "neighbors.parquet")
    assert Manifest.read(tmp_path / "result") == manifest
    assert f"each of {ranges} ranges of rows" in manifest.notes[0]
    # Neither parts nor records are left.
    assert not (tmp_path / "records").exists()
    assert sorted(file.name for file in (tmp_path / "result").iterdir()) == ["manifest.json", "neighbors"]


# Of one instance their places are their numbers: tests/jobs/test_sharded_similarity.py has three.
def test_rows_that_are_shared_out_are_owned_as_whole_ones_are(base, tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    for at, rows in enumerate(np.split(ROWS, [70, 250, 251])):
        np.save(folder / f"part-{at + 8}.npy", rows)
    source = Source(channel="matrix", sharded=True, place=Place(folder, tmp_path / "scratch", "algo-1"))
    queries = queries_of(ROWS[:90], tmp_path)
    one, many = contents(tmp_path, source, 2, queries, top_k=6, block_rows=60)
    assert many == one
    assert many.num_rows == 90


def test_a_head_that_ends_leaves_no_owner_and_the_next_finds_what_they_recorded(ray_here, tmp_path):
    with pytest.raises(Stopped):
        go(tmp_path, 2, at_rows(300, stop), top_k=7, block_rows=60)
    deadline = time.monotonic() + 60
    while owners():
        assert time.monotonic() < deadline, "an owner still lives"
        time.sleep(0.1)
    recorded = files_below(tmp_path / "records")
    after = {}
    manifest = go(
        tmp_path, 2, at_rows(600, lambda: after.update(files_below(tmp_path / "records"))), top_k=7, block_rows=60
    )
    assert len(manifest.files) == 2
    assert manifest.measures["blocks"] == 55
    assert manifest.measures["blocks_found"] >= 14
    # No piece was written again.
    assert recorded.items() <= after.items()
    table = pq.read_table(tmp_path / "result" / "neighbors")
    assert np.array_equal(table["neighbors"].to_pylist(), neighbors(ROWS, 7)[0])


@pytest.mark.parametrize(("lasting", "kill"), [(True, end_owners), (False, end_an_owner)])
def test_owners_that_are_killed_in_the_middle_leave_the_same_content(ray_here, tmp_path, lasting, kill):
    told = []
    killing = at_rows(300, kill)

    def emit_event(event):
        told.append(event)
        killing(event)

    manifest = go(tmp_path, 2, emit_event, lasting=lasting, top_k=7, block_rows=60)
    assert len(manifest.files) == 2
    table = pq.read_table(tmp_path / "result" / "neighbors")
    assert np.array_equal(table["neighbors"].to_pylist(), neighbors(ROWS, 7)[0])
    # Without records the tiles that were done by then are computed again.
    begins = sum(event.done == 0 for event in told if isinstance(event, Progress) and event.phase == "similarity")
    assert begins == (1 if lasting else 2)


def test_pairs_are_owned_by_the_instances_of_their_first_rows(ray_here, tmp_path):
    manifests = [go(tmp_path / str(ranges), ranges, threshold=0.5, block_rows=70) for ranges in (1, 3)]
    assert [file.name for file in manifests[1].files] == [f"pairs/part-{at:05d}-of-00003.parquet" for at in range(3)]
    many = pq.read_table(tmp_path / "3" / "result" / "pairs")
    assert many == pq.read_table(tmp_path / "1" / "result" / "pairs.parquet")
    assert many.num_rows == sum(file.shape[0] for file in manifests[1].files) > 0
    # Pieces are recorded to be merged, also where nothing lasts, and are gone when they are.
    assert not (tmp_path / "3" / "records").exists()


def test_an_owner_of_pairs_that_is_killed_finds_what_it_had(ray_here, tmp_path):
    go(tmp_path, 2, at_rows(300, end_an_owner), lasting=False, threshold=0.5, block_rows=60)
    columns = pq.read_table(tmp_path / "result" / "pairs").to_pydict().values()
    found = [(row, neighbor, np.float32(score)) for row, neighbor, score in zip(*columns, strict=True)]
    assert found == pairs(ROWS, 0.5)


def all_scores(folder, manifest):
    """Return the scores of all parts, in their order."""
    names = [file.name for file in manifest.files if file.name.startswith("similarity/")]
    return np.concatenate([np.load(folder / "result" / name) for name in names])


@pytest.mark.parametrize(("asked", "count"), [(False, 3), (True, 2)])
def test_the_full_matrix_is_owned_by_the_instances_of_its_rows(ray_here, tmp_path, asked, count):
    queries = queries_of(ROWS[:41], tmp_path) if asked else None
    one, many = (
        go(tmp_path / name, ranges, queries=queries, full=True, block_rows=70)
        for name, ranges in (("one", 1), ("many", count))
    )
    assert [file.name for file in many.files] == [f"similarity/part-{at:05d}-of-{count:05d}.npy" for at in range(count)]
    scores = np.load(tmp_path / "one" / "result" / one.files[0].name)
    assert np.array_equal(all_scores(tmp_path / "many", many), scores)
    assert scores.shape == (41 if asked else 600, 600)
    assert not (tmp_path / "many" / "records").exists()


def test_an_owner_of_the_full_matrix_that_is_killed_leaves_the_same_scores_and_nothing_else(ray_here, tmp_path):
    manifest = go(tmp_path, 2, at_rows(300, end_an_owner), lasting=False, full=True, block_rows=60)
    assert np.array_equal(all_scores(tmp_path, manifest), score_rows(ROWS, range(600)))
    left = [path.relative_to(tmp_path / "result").as_posix() for path in (tmp_path / "result").glob("*/*")]
    assert sorted(left) == [file.name for file in manifest.files]


def test_a_restarted_head_computes_no_strip_that_an_owner_recorded(ray_here, tmp_path):
    # Of so many columns a score takes longer to compute than to be kept.
    source = saved(np.random.default_rng(5).standard_normal((300, 2000), dtype=np.float32), tmp_path)
    with pytest.raises(Stopped):
        go_on(tmp_path, 2, at_rows(150, stop), source=source, full=True, block_rows=20)
    manifest = go_on(tmp_path, 2, source=source, full=True, block_rows=20)
    assert manifest.measures["blocks"] == 16
    assert manifest.measures["blocks_found"] >= 5
    assert np.array_equal(all_scores(tmp_path, manifest), score_rows(source.open().read(0, 300), range(300)))


# Each time Ray starts it again costs the start of a process.
@pytest.mark.long
def test_an_owner_that_ends_whenever_it_takes_something_in_is_given_up(ray_here, tmp_path):
    class Deadly(RangeMerger):
        def bounds(self, runs):
            return np.full(sum(run.rows for run in runs), -np.inf, dtype=np.float32)

        def take(self, name, piece):
            os._exit(1)

        def write(self, ids, on_rows):
            raise AssertionError("nothing was taken in")

    class Deadening(TopK):
        def merger(self, owned, folder, scratch, record):
            return Deadly()

    run_, task = run_of(ROWS, tmp_path, top_k=3), TileTask(WHOLE, True)
    with closing(Collector(Deadening(3), run_, [task], RowOrder.identity(600), run_.record("topk"), 2)) as collector:
        with pytest.raises(BlockFailed, match=f"failed {MAX_RESTARTS + 1} times"):
            collector.comparing.compare(run_.context, task)

"""Results whose ranges of rows have owners, the head or actors on a Ray of one instance: their content is the same."""

import os
from contextlib import closing, suppress

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from raysm.core.protocol.events import Progress
from raysm.core.protocol.result import Manifest
from raysm.errors import BlockFailed, NoRoom
from raysm.features.similarity.cluster import owners as owners_module
from raysm.features.similarity.cluster.modes import topk
from raysm.features.similarity.cluster.modes.mode import RangeMerger
from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.cluster.owners import MAX_RESTARTS, Collector
from raysm.features.similarity.cluster.run import Folders
from raysm.features.similarity.cluster.tasks import TileTask
from raysm.features.similarity.cluster.tiling import RowOrder
from raysm.features.similarity.request import Similarity
from raysm.features.similarity.runner import run
from raysm.instance.work import report
from raysm.instance.work.nodes import cluster_nodes
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors, pairs, score_rows, scores_between
from tests.support.similarity import queries_of, run_of, saved
from tests.support.waiting import until

ROWS = kinds_of_rows(rows=600)["duplicates"]
"""Zero rows and rows that are alike are among them."""


WHOLE = TileBlock(RowBlock(0, 600), RowBlock(0, 600))


class Stopped(Exception):
    """Stands for the end of a head in the middle of the work."""


def go(folder, ranges, emit_event=lambda event: None, *, queries=None, is_durable=True, **workload):
    return run(
        Similarity(parts=ranges, **workload),
        job="job",
        source=saved(ROWS, folder),
        folders=Folders(
            result=folder / "result", records=folder / "records", is_durable=is_durable
        ),
        emit_event=emit_event,
        queries=queries,
    )


def at_rows(rows, act, phase="similarity"):
    """Return what takes events, and acts once when so many rows are done in a phase."""
    acted = []

    def emit_event(event):
        if (
            not acted
            and isinstance(event, Progress)
            and event.phase == phase
            and event.done >= rows
        ):
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
        process
        for process in psutil.Process().children(recursive=True)
        if title_of(process).startswith("ray::Owner")
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


# An owner is a process, and takes more than half a second of a core: here are three, where one lies
# between two; elsewhere two, where that shows the same.
def test_ranges_hold_the_neighbors_of_float64_row_by_row_and_the_content_of_the_one_file(
    ray_here, tmp_path
):
    manifest = go(tmp_path, 3, top_k=7, block_rows=150)
    table = pq.read_table(tmp_path / "result" / "neighbors")
    expected = neighbors(ROWS, 7)
    assert table["row"].to_pylist() == list(range(600))
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(
        np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1]
    )
    assert [file.name for file in manifest.files] == [
        f"neighbors/part-{at:05d}-of-00003.parquet" for at in range(3)
    ]
    assert sum(file.shape[0] for file in manifest.files) == 600
    # Equal as tables: the type of each column too.
    go(tmp_path / "one", 1, top_k=7)
    assert table == pq.read_table(tmp_path / "one" / "result" / "neighbors.parquet")
    assert Manifest.read(tmp_path / "result") == manifest
    assert "each of 3 ranges of rows" in manifest.notes[0]
    # Neither parts nor records are left.
    assert not (tmp_path / "records").exists()
    assert sorted(file.name for file in (tmp_path / "result").iterdir()) == [
        "manifest.json",
        "neighbors",
    ]


def test_a_head_that_ends_leaves_no_owner_and_the_next_finds_what_they_recorded(ray_here, tmp_path):
    with pytest.raises(Stopped):
        go(tmp_path, 2, at_rows(300, stop), top_k=7, block_rows=120)
    until(lambda: not owners(), 60)
    recorded = files_below(tmp_path / "records")
    after = {}
    # These owners are killed once all is computed: they find what they, or those before them,
    # recorded.
    manifest = go(
        tmp_path,
        2,
        at_rows(600, lambda: (after.update(files_below(tmp_path / "records")), end_owners())),
        top_k=7,
        block_rows=120,
    )
    assert len(manifest.files) == 2
    assert manifest.measures["blocks"] == 15
    assert manifest.measures["blocks_found"] >= 4
    # No piece was written again.
    assert recorded.items() <= after.items()
    table = pq.read_table(tmp_path / "result" / "neighbors")
    assert np.array_equal(table["neighbors"].to_pylist(), neighbors(ROWS, 7)[0])


def test_an_owner_of_pairs_that_is_killed_finds_what_it_had(ray_here, tmp_path):
    manifest = go(
        tmp_path, 2, at_rows(300, end_an_owner), is_durable=False, threshold=0.5, block_rows=100
    )
    assert [file.name for file in manifest.files] == [
        f"pairs/part-{at:05d}-of-00002.parquet" for at in range(2)
    ]
    columns = pq.read_table(tmp_path / "result" / "pairs").to_pydict().values()
    found = [
        (row, neighbor, np.float32(score)) for row, neighbor, score in zip(*columns, strict=True)
    ]
    assert found == pairs(ROWS, 0.5)
    # Pieces are recorded to be merged, also where nothing lasts, and are gone when they are.
    assert not (tmp_path / "records").exists()


@pytest.fixture
def two_owners(monkeypatch):
    """Results of any size are merged by two owners, and read by the head in small pieces."""
    monkeypatch.setattr(owners_module, "HEAD_BYTES", 0)
    monkeypatch.setattr(owners_module, "READ_BYTES", 50 * 7 * 8)
    monkeypatch.setattr(owners_module, "owning_nodes", lambda: 2 * cluster_nodes())


@pytest.mark.parametrize("loss", ["none", "while tiles are computed", "while the head writes"])
def test_one_file_of_what_owners_merged_is_that_which_the_head_merges(
    ray_here, tmp_path, monkeypatch, two_owners, loss
):
    # Row groups of 100 rows, each of which is reported.
    monkeypatch.setattr(topk, "GROUP_BYTES", 100 * (12 * 7 + 8))
    monkeypatch.setattr(report, "INTERVAL_S", 0)
    came = []
    take = Collector.take

    def counting(collector, task, part):
        came.append(sum(array.nbytes for array in part.arrays.values()))
        return take(collector, task, part)

    monkeypatch.setattr(Collector, "take", counting)
    phase = {"while tiles are computed": "similarity", "while the head writes": "gather"}.get(loss)
    emit_event = at_rows(100, end_an_owner, phase)
    manifest = go(tmp_path, None, emit_event, is_durable=False, top_k=7, block_rows=120)
    # The tasks' parts went to the owners.
    assert set(came) == {0}
    assert len(came) == 15 if loss == "none" else len(came) > 15
    assert manifest.notes == (
        "each of 2 ranges of rows is merged by an instance, and the head writes one file",
    )
    monkeypatch.setattr(owners_module, "HEAD_BYTES", 1 << 20)
    alone = go(tmp_path / "alone", None, top_k=7)
    assert [file.name for file in manifest.files] == ["neighbors.parquet"]
    assert (manifest.files, manifest.notes[1:]) == (alone.files, alone.notes)
    assert sorted(file.name for file in (tmp_path / "result").iterdir()) == [
        "manifest.json",
        "neighbors.parquet",
    ]
    assert not owners()


def test_a_restart_with_another_number_of_instances_finds_what_the_owners_of_one_file_recorded(
    ray_here, tmp_path, monkeypatch, two_owners
):
    with pytest.raises(Stopped):
        go(tmp_path, None, at_rows(300, stop), top_k=7, block_rows=120)
    until(lambda: not owners(), 60)
    monkeypatch.setattr(owners_module, "owning_nodes", lambda: 3 * cluster_nodes())
    manifest = go(tmp_path, None, top_k=7, block_rows=120)
    assert manifest.measures["blocks_found"] > 0
    assert manifest.notes[0].startswith("each of 2 ranges")


def test_one_file_that_does_not_fit_on_the_heads_disk_is_refused_before_anything_is_compared(
    ray_here, tmp_path, monkeypatch, two_owners
):
    monkeypatch.setattr(topk, "_result_bytes", lambda rows, k: 1 << 60)
    told = []
    with pytest.raises(NoRoom, match="on the head"):
        go(tmp_path, None, told.append, top_k=7, block_rows=120)
    assert not [event for event in told if getattr(event, "phase", "") == "similarity"]
    assert not owners()


def all_scores(folder, manifest):
    """Return the scores of all parts, in their order."""
    names = [file.name for file in manifest.files]
    assert names == [
        f"similarity/part-{at:05d}-of-{len(names):05d}.npy" for at in range(len(names))
    ]
    return np.concatenate([np.load(folder / "result" / name) for name in names])


def test_the_rows_of_a_full_matrix_of_queries_are_owned(ray_here, tmp_path):
    manifest = go(tmp_path, 2, queries=queries_of(ROWS[:41], tmp_path), full=True, block_rows=70)
    assert len(manifest.files) == 2
    assert np.array_equal(all_scores(tmp_path, manifest), scores_between(ROWS[:41], ROWS))
    assert not (tmp_path / "records").exists()


def test_an_owner_without_records_that_is_killed_has_its_tiles_computed_again(ray_here, tmp_path):
    told = []
    killing = at_rows(300, end_an_owner)

    def emit_event(event):
        told.append(event)
        killing(event)

    manifest = go(tmp_path, 2, emit_event, is_durable=False, full=True, block_rows=100)
    assert np.array_equal(all_scores(tmp_path, manifest), score_rows(ROWS, range(600)))
    assert (
        sum(
            event.done == 0
            for event in told
            if isinstance(event, Progress) and event.phase == "similarity"
        )
        == 2
    )
    left = [
        path.relative_to(tmp_path / "result").as_posix()
        for path in (tmp_path / "result").glob("*/*")
    ]
    assert sorted(left) == [file.name for file in manifest.files]


# Each time Ray starts it again costs the start of a process, and it does so eight times.
@pytest.mark.soak
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
    with closing(
        Collector(Deadening(3), run_, [task], RowOrder.identity(600), run_.record("topk"), 2)
    ) as collector:
        with pytest.raises(BlockFailed, match=f"failed {MAX_RESTARTS + 1} times"):
            collector.comparing.compare(run_.context, task)

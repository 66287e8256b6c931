"""The similarity as the driver runs it, on a cluster that is there."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import raysm
from raysm.core.protocol.events import Metric, Progress, State, parse
from raysm.core.protocol.names import FAILURE_RECORD
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import Manifest
from raysm.core.request import Input, JobRequest
from raysm.features.similarity.cluster.arithmetic.keys import encode
from raysm.features.similarity.cluster.layout import load
from raysm.features.similarity.cluster.modes.threshold import write_pairs
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.files import digest
from raysm.features.similarity.cluster.reading.matrix import Location, Source
from raysm.features.similarity.cluster.run import Folders
from raysm.features.similarity.cluster.tasks import Part
from raysm.features.similarity.request import Similarity
from raysm.features.similarity.runner import run
from tests.support.dense_rows import kinds_of_rows
from tests.support.driving import drive, refusal_without
from tests.support.payloads import pack_payload
from tests.support.reference import neighbors, score_rows, scores_between
from tests.support.similarity import queries_of, run_of, saved


def test_an_image_without_numpy_says_so_and_names_the_extra():
    assert refusal_without("numpy", Similarity(top_k=1)) == (
        "the image lacks numpy, which the similarity needs; add raysm's extra: python3 -m pip install 'raysm[local]'"
    )


def test_ray_imports_no_pydantic_in_a_process_of_a_similarity_which_can_itself():
    code = """
import importlib, sys
importlib.import_module(sys.argv[1])
import ray._common.pydantic_compat
before = "pydantic" in sys.modules
import pydantic
print(before, pydantic.BaseModel.__name__)
"""
    command = [sys.executable, "-c", code, *Similarity.preloads]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        == "False BaseModel\n"
    )


def pack_similarity(base: Path, rows, **workload):
    paths = Paths(base)
    paths.channel("matrix").mkdir(parents=True)
    np.save(paths.channel("matrix") / "rows.npy", rows)
    request = JobRequest(
        name="digits", workload=Similarity(**workload), inputs={"matrix": Input("/data")}
    )
    pack_payload(request, paths.payload)
    return paths


def test_a_terminated_similarity_goes_on_where_it_stopped(address, base, tmp_path):
    rows = np.random.default_rng(0).standard_normal((3000, 512)).astype(np.float32)
    paths = pack_similarity(base, rows, top_k=3, block_rows=150)
    paths.checkpoints.mkdir()
    command = [sys.executable, "-m", "raysm.instance.work.driver"]
    record = tmp_path / "failure.json"
    with subprocess.Popen(
        command,
        env=os.environ | {FAILURE_RECORD: str(record)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        for line in driver.stdout:
            event = parse(line)
            if isinstance(event, Progress) and event.phase == "similarity" and event.done:
                break
        driver.terminate()
        _, errors = driver.communicate(timeout=90)
    assert driver.returncode == 143, errors
    assert not record.exists()
    finished = [
        file for file in (paths.checkpoints / "raysm" / "similarity").rglob("*") if file.is_file()
    ]
    assert 1 <= len(finished) < 200
    done, _ = drive(paths, tmp_path)
    assert done.returncode == 0, done.stderr
    events = [
        event for event in map(parse, done.stdout.splitlines()) if isinstance(event, Progress)
    ]
    assert events[-1].done == 3000
    assert sorted(file.name for file in paths.model.iterdir()) == [
        "manifest.json",
        "neighbors.parquet",
    ]
    assert Manifest.read(paths.model).job == "digits"
    table = pyarrow.parquet.read_table(paths.model / "neighbors.parquet")
    some = range(0, 3000, 300)
    assert table["neighbors"].take(list(some)).to_pylist() == neighbors(rows, 3, some)[0].tolist()


def test_bad_rows_are_exit_code_two_and_leave_no_result(address, base, tmp_path):
    rows = np.ones((50, 5))
    rows[33, 2] = np.nan
    paths = pack_similarity(base, rows, top_k=3)
    done, failure = drive(paths, tmp_path)
    assert done.returncode == failure.exit_code == 2
    assert failure.reason() == (
        "InvalidInput: row 33 of the matrix (counted from 0) holds NaN or infinity, the first such row; replace it"
    )
    assert not paths.model.exists() or list(paths.model.iterdir()) == []


ROWS = kinds_of_rows(rows=600)["duplicates"]
WIDE = np.random.default_rng(5).standard_normal((300, 2000), dtype=np.float32)
"""Rows of which a score takes longer to compute than to be kept and brought back."""


MODES = ("top-k", "threshold", "full")


class Stopped(Exception):
    """Stands for the end of an instance in the middle of the work."""


def go(source, folder, emit_event=lambda event: None, queries=None, **workload):
    folders = Folders(result=folder / "result", records=folder / "records")
    return run(
        Similarity(**workload),
        job="job",
        source=source,
        folders=folders,
        emit_event=emit_event,
        queries=queries,
    )


def stop_at(done):
    def emit_event(event):
        if isinstance(event, Progress) and event.phase == "similarity" and event.done >= done:
            raise Stopped

    return emit_event


def test_top_k_leaves_a_table_and_a_manifest(ray_here, tmp_path):
    events = []
    source = saved(ROWS, tmp_path)
    manifest = go(source, tmp_path, events.append, top_k=4)
    table = pq.read_table(tmp_path / "result" / "neighbors.parquet")
    assert table.schema.field("neighbors").type.list_size == 4
    assert table.schema.field("neighbors").type.value_type == pa.int64()
    assert table.schema.field("similarities").type.value_type == pa.float32()
    expected = neighbors(ROWS, 4)
    assert table["row"].to_pylist() == list(range(600))
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(
        np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1]
    )
    assert Manifest.read(tmp_path / "result") == manifest
    assert manifest.instances == ("algo-1",)
    assert manifest.inputs["matrix"]["sha256"] == digest(source.location.channel).result()
    assert manifest.versions["raysm"] == raysm.__version__
    assert list(manifest.phases_s) == ["load", "prepare", "similarity", "gathering"]
    assert manifest.files[0].shape == (600, 4)
    assert [event.name for event in events if isinstance(event, State)] == ["running", "gathering"]
    done = [
        event.done
        for event in events
        if isinstance(event, Progress) and event.phase == "similarity"
    ]
    assert (done[0], done[-1], sorted(done)) == (0, 600, done)
    assert [event.host for event in events if isinstance(event, Metric)] == ["algo-1"]
    assert sorted(file.name for file in (tmp_path / "result").iterdir()) == [
        "manifest.json",
        "neighbors.parquet",
    ]
    assert not (tmp_path / "records").exists()


def test_a_small_matrix_is_computed_by_the_head_alone_and_a_larger_one_by_workers(
    ray_here, tmp_path
):
    small, much_work = (
        saved(ROWS, tmp_path / "small"),
        saved(np.ones((5000, 40), np.int8), tmp_path / "work"),
    )
    size = small.location.channel.stat().st_size
    assert [load(small, small_bytes=limit).rows.computed_here for limit in (0, size - 1, size)] == [
        False,
        False,
        True,
    ]
    assert not load(much_work, small_bytes=1 << 20).rows.computed_here


def test_full_leaves_every_score(ray_here, tmp_path):
    go(saved(ROWS, tmp_path), tmp_path, full=True, dtype="float16", block_rows=150)
    found = np.load(tmp_path / "result" / "similarity.npy", mmap_mode="r")
    assert found.dtype == "float16"
    assert np.array_equal(found, score_rows(ROWS, range(600)).astype("float16"))


def test_a_threshold_that_nearly_all_pairs_reach_is_dealt_in_pieces(ray_here, tmp_path):
    rows = np.ones((2500, 1), dtype=np.int8)
    manifest = go(saved(rows, tmp_path), tmp_path, threshold=0.5, block_rows=2500)
    assert manifest.files[0].shape == (2500 * 2499 // 2,)
    table = pq.read_table(tmp_path / "result" / "pairs.parquet")
    assert np.array_equal(np.stack([table["row"], table["neighbor"]]), np.triu_indices(2500, 1))


def test_queries_are_compared_with_the_rows_of_the_matrix(ray_here, tmp_path):
    queries = np.concatenate([ROWS[:40], np.zeros((1, 24), dtype=ROWS.dtype)])
    source, seeking = saved(ROWS, tmp_path), queries_of(queries, tmp_path)
    scores = scores_between(queries, ROWS)
    manifest = go(source, tmp_path, queries=seeking, top_k=600, block_rows=33)
    assert list(manifest.inputs) == ["matrix", "queries"]
    table = pq.read_table(tmp_path / "result" / "neighbors.parquet")
    order = np.stack([np.lexsort((np.arange(600), -row.astype(np.float64))) for row in scores])
    assert table["neighbors"].to_pylist() == order.tolist()
    go(source, tmp_path / "pairs", queries=seeking, threshold=0.5, block_rows=100)
    table = pq.read_table(tmp_path / "pairs" / "result" / "pairs.parquet")
    found = zip(*(table[name].to_pylist() for name in table.schema.names), strict=True)
    expected = [(i, j, scores[i, j]) for i, j in np.argwhere(scores >= np.float32(0.5)).tolist()]
    assert [(i, j, np.float32(s)) for i, j, s in found] == expected


def test_a_sparse_matrix_is_compared_by_its_elements(ray_here, tmp_path):
    # Two files of different types are one matrix; row 5 has no elements.
    first, second = (
        scipy.sparse.random(n, 900, density=0.01, format="csr", random_state=n) for n in (200, 130)
    )
    first = first.astype(np.float32)
    first.data[first.indptr[5] : first.indptr[6]] = 0
    rows = np.concatenate([first.toarray().astype(np.float64), second.toarray()])
    folder = tmp_path / "matrix"
    folder.mkdir()
    scipy.sparse.save_npz(folder / "part-1.npz", first)
    scipy.sparse.save_npz(folder / "part-2.npz", second)
    source = Source(channel="matrix", location=Location(folder, tmp_path / "scratch", "algo-1"))
    manifest = go(source, tmp_path / "top", top_k=6, block_rows=70)
    assert manifest.engines == ("float32 sparse",)
    assert manifest.inputs["matrix"]["sparse"]
    table = pq.read_table(tmp_path / "top" / "result" / "neighbors.parquet")
    expected = neighbors(rows, 6)
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(
        np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1]
    )
    go(source, tmp_path / "full", full=True, block_rows=100)
    assert np.array_equal(
        np.load(tmp_path / "full" / "result" / "similarity.npy"), score_rows(rows, range(330))
    )


def with_ids(rows, ids, folder, channel="matrix"):
    """Save rows, and a column of ids, as the file of a channel."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"item": ids, **{f"x{i}": column for i, column in enumerate(rows.T)}}),
        folder / "m.parquet",
    )
    return Source(
        channel=channel,
        selection=Selection(ids=("item",)),
        location=Location(folder / "m.parquet", folder / "scratch", "algo-1"),
    )


def test_queries_have_their_ids_and_their_neighbors_those_of_the_matrix(ray_here, tmp_path):
    source = with_ids(ROWS, pa.array(np.arange(600) * 10), tmp_path)
    queries = with_ids(ROWS[5:8], pa.array(["a", "b", "c"]), tmp_path / "queries", "queries")
    go(source, tmp_path / "top", queries=queries, top_k=3, id_column="item")
    found = pq.read_table(tmp_path / "top" / "result" / "neighbors.parquet")
    assert found["id"].to_pylist() == ["a", "b", "c"]
    assert (
        found["neighbor_ids"].to_pylist()
        == (np.array(found["neighbors"].to_pylist()) * 10).tolist()
    )
    manifest = go(source, tmp_path / "full", queries=queries, full=True, id_column="item")
    assert [file.name for file in manifest.files] == [
        "similarity.npy",
        "ids.parquet",
        "query_ids.parquet",
    ]
    names = [
        pq.read_table(tmp_path / "full" / "result" / file.name)["id"].to_pylist()
        for file in manifest.files[1:]
    ]
    assert names == [list(range(0, 6000, 10)), ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("rows", "workload"),
    [(ROWS, {"top_k": 7}), (ROWS, {"threshold": 0.5}), (WIDE, {"full": True})],
    ids=MODES,
)
def test_a_restarted_job_goes_on_where_it_stopped_and_its_bytes_do_not_depend_on_the_blocks(
    ray_here, tmp_path, rows, workload
):
    source = saved(rows, tmp_path)
    expected = go(source, tmp_path / "other", **workload).files[0].sha256
    with pytest.raises(Stopped):
        go(source, tmp_path, stop_at(len(rows) // 2), block_rows=len(rows) // 6, **workload)
    assert not (tmp_path / "result" / "manifest.json").exists()
    recorded = {file: file.stat().st_mtime_ns for file in (tmp_path / "records").rglob("*")}
    recorded = {
        file: time
        for file, time in recorded.items()
        if file.is_file() and file.stat().st_size > 1000
    }
    assert len(recorded) >= 2
    # A part that was damaged while it was away is computed again.
    damaged = min(recorded)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\1")
    del recorded[damaged]
    kept = []

    def emit_event(event):
        if isinstance(event, State) and event.name == "gathering":
            kept.append({file: file.stat().st_mtime_ns for file in recorded})

    assert (
        go(source, tmp_path, emit_event, block_rows=len(rows) // 6, **workload).files[0].sha256
        == expected
    )
    assert kept == [recorded]


def test_queries_are_aligned_with_the_matrix_by_name_and_both_are_printed_first(
    ray_here, tmp_path, capfd
):
    places = {}
    for channel, order in (("matrix", [0, 1, 2]), ("queries", [2, 0, 1])):
        path = tmp_path / channel / "m.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"abc"[i]: ROWS[:5, i] for i in order}), path)
        places[channel] = Source(
            channel=channel, location=Location(path, tmp_path / f"{channel}-scratch", "algo-1")
        )
    go(places["matrix"], tmp_path, queries=places["queries"], full=True)
    scores = np.load(tmp_path / "result" / "similarity.npy")
    np.testing.assert_array_equal(scores, scores_between(ROWS[:5, :3], ROWS[:5, :3]))
    printed = capfd.readouterr().err
    assert f"raysm: matrix: 5 rows x 3 columns (a, b, c), {ROWS.dtype}" in printed
    assert f"raysm: queries: 5 rows x 3 columns (a, b, c), {ROWS.dtype}" in printed


NUMBERS = np.random.default_rng(0).integers(0, 1000, (50, 4))
SCORES = -np.sort(-np.random.default_rng(1).random((50, 4), dtype=np.float32), axis=1)


def keys(start, stop):
    return encode(SCORES[start:stop], NUMBERS[start:stop])


@pytest.mark.parametrize("cuts", [[0, 300], [0, 1, 2, 150, 300], [0, 0, 100, 300, 300]])
def test_the_bytes_of_pairs_do_not_depend_on_how_they_came(tmp_path, cuts):
    rows = np.sort(np.random.default_rng(2).integers(0, 50, 300))
    columns = (rows, np.arange(300), np.linspace(0, 1, 300, dtype=np.float32))
    chunks = [
        tuple(column[a:b] for column in columns) for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    file = write_pairs(tmp_path / "pairs.parquet", iter(chunks))
    assert file.sha256 == write_pairs(tmp_path / "whole.parquet", [columns]).sha256
    table = pq.read_table(tmp_path / "pairs.parquet")
    for name, column in zip(("row", "neighbor", "similarity"), columns, strict=True):
        np.testing.assert_array_equal(table[name].to_numpy(), column)


@pytest.fixture
def begun_run(tmp_path):
    return run_of(kinds_of_rows(rows=20)["float32"], tmp_path, top_k=3)


def part(seconds=1.0, **peaks):
    return Part(arrays={"keys": np.arange(3)}, peaks=peaks, seconds=seconds, engines=("int8 AMX",))


def test_a_block_is_found_again_by_a_run_of_the_same_request_alone(begun_run):
    begun_run.record("topk").save("a tile", part())
    assert "a tile" in begun_run.record("topk")
    np.testing.assert_array_equal(
        begun_run.record("topk").load("a tile").arrays["keys"], np.arange(3)
    )
    others = (
        replace(begun_run, workload=Similarity(top_k=4)),
        replace(begun_run, digests={"matrix": "b" * 64}),
    )
    assert not any("a tile" in other.record("topk") for other in others)
    assert "a tile" not in begun_run.record("topk of shards")

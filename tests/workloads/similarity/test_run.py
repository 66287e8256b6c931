import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.contract.events import Metric, Progress, State
from raysm.contract.result import Manifest
from raysm.errors import InvalidInput
from raysm.request import Similarity
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.files import digest
from raysm.workloads.similarity.reading.matrix import Place, Source
from raysm.workloads.similarity.run import run
from raysm.workloads.similarity.runs import Folders
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors, pairs, score_rows, scores_between
from tests.support.similarity import queries_of, saved

ROWS = kinds_of_rows(rows=600)["duplicates"]
WIDE = np.random.default_rng(5).standard_normal((600, 2000), dtype=np.float32)
"""Rows of which a score takes longer to compute than to be kept and brought back."""


MODES = ("top-k", "threshold", "full")


class Stopped(Exception):
    """Stands for the end of an instance in the middle of the work."""


def go(source, folder, emit_event=lambda event: None, queries=None, **workload):
    folders = Folders(result=folder / "result", records=folder / "records")
    return run(
        Similarity(**workload), job="job", source=source, folders=folders, emit_event=emit_event, queries=queries
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
    assert np.array_equal(np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1])
    assert Manifest.read(tmp_path / "result") == manifest
    assert manifest.instances == ("algo-1",)
    assert manifest.inputs["matrix"]["sha256"] == digest(source.place.channel).result()
    assert manifest.versions["raysm"] == raysm.__version__
    assert list(manifest.phases_s) == ["load", "prepare", "similarity", "gathering"]
    assert manifest.files[0].shape == (600, 4)
    assert [event.name for event in events if isinstance(event, State)] == ["running", "gathering"]
    done = [event.done for event in events if isinstance(event, Progress) and event.phase == "similarity"]
    assert (done[0], done[-1], sorted(done)) == (0, 600, done)
    assert [event.host for event in events if isinstance(event, Metric)] == ["algo-1"]
    assert sorted(file.name for file in (tmp_path / "result").iterdir()) == ["manifest.json", "neighbors.parquet"]
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("workload", [{"top_k": 7}, {"threshold": 0.5}, {"full": True}])
def test_the_bytes_do_not_depend_on_the_blocks(ray_here, tmp_path, workload):
    source = saved(ROWS, tmp_path)
    sizes = [None, 73, 600, 5000]
    found = [go(source, tmp_path / str(rows), block_rows=rows, **workload).files[0].sha256 for rows in sizes]
    assert len(set(found)) == 1


def test_a_similarity_below_the_threshold_is_not_reported_even_if_it_is_the_nearest_float32(ray_here, tmp_path):
    # 0.9 lies between two float32: the nearest of them is the similarity of the first two rows, and less than 0.9.
    rows = np.array([[1.0, 0.0], [0.9, math.sqrt(1 - 0.9**2)], [0.9000001, math.sqrt(1 - 0.9000001**2)]])
    assert [(i, j) for i, j, _ in pairs(rows, np.float32(0.9))] == [(0, 1), (0, 2), (1, 2)]
    go(saved(rows, tmp_path), tmp_path, threshold=0.9)
    table = pq.read_table(tmp_path / "result" / "pairs.parquet")
    assert [tuple(row.values())[:2] for row in table.to_pylist()] == [(0, 2), (1, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_full_leaves_every_score(ray_here, tmp_path, dtype):
    go(saved(ROWS, tmp_path), tmp_path, full=True, dtype=dtype, block_rows=150)
    found = np.load(tmp_path / "result" / "similarity.npy", mmap_mode="r")
    assert found.dtype == dtype
    assert np.array_equal(found, score_rows(ROWS, range(600)).astype(dtype))


def test_a_threshold_that_nearly_all_pairs_reach_is_dealt_in_pieces(ray_here, tmp_path):
    rows = np.ones((2500, 1), dtype=np.int8)
    manifest = go(saved(rows, tmp_path), tmp_path, threshold=0.5, block_rows=2500)
    assert manifest.files[0].shape == (2500 * 2499 // 2,)
    table = pq.read_table(tmp_path / "result" / "pairs.parquet")
    assert np.array_equal(np.stack([table["row"], table["neighbor"]]), np.triu_indices(2500, 1))


def test_queries_are_compared_with_the_rows_of_the_matrix(ray_here, tmp_path):
    queries = np.concatenate([ROWS[:40], np.zeros((1, 24), dtype=ROWS.dtype)])
    source, seeking = saved(ROWS, tmp_path), queries_of(queries, tmp_path)
    scores = score_rows(np.concatenate([queries, ROWS]), range(41))[:, 41:]
    manifests = [
        go(source, tmp_path / str(size), queries=seeking, top_k=600, block_rows=size) for size in (None, 33, 600)
    ]
    assert len({manifest.files[0].sha256 for manifest in manifests}) == 1
    assert list(manifests[0].inputs) == ["matrix", "queries"]
    table = pq.read_table(tmp_path / "33" / "result" / "neighbors.parquet")
    order = np.stack([np.lexsort((np.arange(600), -row.astype(np.float64))) for row in scores])
    assert table["neighbors"].to_pylist() == order.tolist()
    go(source, tmp_path / "pairs", queries=seeking, threshold=0.5, block_rows=100)
    table = pq.read_table(tmp_path / "pairs" / "result" / "pairs.parquet")
    found = zip(*(table[name].to_pylist() for name in table.schema.names), strict=True)
    expected = [(i, j, scores[i, j]) for i, j in np.argwhere(scores >= np.float32(0.5)).tolist()]
    assert [(i, j, np.float32(s)) for i, j, s in found] == expected
    go(source, tmp_path / "full", queries=seeking, full=True, block_rows=100)
    assert np.array_equal(np.load(tmp_path / "full" / "result" / "similarity.npy"), scores)


@pytest.mark.parametrize(
    ("queries_type", "matrix_type"),
    [("float64", "float32"), ("int64", "float32")],
)
def test_queries_of_another_type_than_the_matrix_are_compared_as_exactly(ray_here, tmp_path, queries_type, matrix_type):
    rows = (np.random.default_rng(3).standard_normal((400, 64)) * 3).astype(matrix_type)
    queries = rows[:40].astype(queries_type)
    source, seeking = saved(rows, tmp_path), queries_of(queries, tmp_path)
    scores = scores_between(queries, rows)
    manifest = go(source, tmp_path / "top", queries=seeking, top_k=5)
    table = pq.read_table(tmp_path / "top" / "result" / "neighbors.parquet")
    order = np.stack([np.lexsort((np.arange(400), -row.astype(np.float64))) for row in scores])[:, :5]
    assert np.array_equal(table["neighbors"].to_pylist(), order)
    found = np.array(table["similarities"].to_pylist(), dtype=np.float32)
    assert np.array_equal(found, np.take_along_axis(scores, order, axis=1))
    go(source, tmp_path / "pairs", queries=seeking, threshold=0.9)
    table = pq.read_table(tmp_path / "pairs" / "result" / "pairs.parquet")
    expected = np.argwhere(scores.astype(np.float64) >= 0.9)
    assert np.array_equal(np.stack([table["row"], table["neighbor"]], axis=1), expected)
    # What is read as another type is still the files' own.
    assert [manifest.inputs[name]["dtype"] for name in ("queries", "matrix")] == [queries_type, matrix_type]


def with_ids(rows, ids, folder, channel="matrix"):
    """Save rows, and a column of ids, as the file of a channel."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"item": ids, **{f"x{i}": column for i, column in enumerate(rows.T)}}), folder / "m.parquet"
    )
    return Source(
        channel=channel,
        selection=Selection(ids=("item",)),
        place=Place(folder / "m.parquet", folder / "scratch", "algo-1"),
    )


def test_ids_stand_beside_rows_and_neighbors(ray_here, tmp_path):
    ids = pa.array(np.arange(600, dtype=np.uint64) + np.uint64(2**63))
    source, names = with_ids(ROWS, ids, tmp_path), np.array(ids.to_pylist(), dtype=object)
    go(source, tmp_path / "top", top_k=2, id_column="item")
    found = pq.read_table(tmp_path / "top" / "result" / "neighbors.parquet")
    assert found.schema.names == ["row", "id", "neighbors", "neighbor_ids", "similarities"]
    assert found["id"].to_pylist() == names.tolist()
    assert found["neighbor_ids"].to_pylist() == names[np.array(found["neighbors"].to_pylist())].tolist()
    manifest = go(source, tmp_path / "pairs", threshold=0.9, id_column="item")
    assert [file.name for file in manifest.files] == ["pairs.parquet"]
    found = pq.read_table(tmp_path / "pairs" / "result" / "pairs.parquet")
    assert found["id"].to_pylist() == names[found["row"].to_numpy()].tolist()
    assert found["neighbor_id"].to_pylist() == names[found["neighbor"].to_numpy()].tolist()


def test_queries_have_their_ids_and_their_neighbors_those_of_the_matrix(ray_here, tmp_path):
    source = with_ids(ROWS, pa.array(np.arange(600) * 10), tmp_path)
    queries = with_ids(ROWS[5:8], pa.array(["a", "b", "c"]), tmp_path / "queries", "queries")
    go(source, tmp_path / "top", queries=queries, top_k=3, id_column="item")
    found = pq.read_table(tmp_path / "top" / "result" / "neighbors.parquet")
    assert found["id"].to_pylist() == ["a", "b", "c"]
    assert found["neighbor_ids"].to_pylist() == (np.array(found["neighbors"].to_pylist()) * 10).tolist()
    go(source, tmp_path / "pairs", queries=queries, threshold=0.9, id_column="item")
    found = pq.read_table(tmp_path / "pairs" / "result" / "pairs.parquet")
    assert found["id"].to_pylist() == ["abc"[row] for row in found["row"].to_pylist()]
    assert found["neighbor_id"].to_pylist() == [row * 10 for row in found["neighbor"].to_pylist()]
    manifest = go(source, tmp_path / "full", queries=queries, full=True, id_column="item")
    assert [file.name for file in manifest.files] == ["similarity.npy", "ids.parquet", "query_ids.parquet"]
    names = [pq.read_table(tmp_path / "full" / "result" / file.name)["id"].to_pylist() for file in manifest.files[1:]]
    assert names == [list(range(0, 6000, 10)), ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("rows", "workload"), [(ROWS, {"top_k": 7}), (ROWS, {"threshold": 0.5}), (WIDE, {"full": True})], ids=MODES
)
def test_a_restarted_job_goes_on_where_it_stopped(ray_here, tmp_path, rows, workload):
    source = saved(rows, tmp_path)
    expected = go(source, tmp_path / "other", block_rows=60, **workload).files[0].sha256
    with pytest.raises(Stopped):
        go(source, tmp_path, stop_at(300), block_rows=60, **workload)
    assert not (tmp_path / "result" / "manifest.json").exists()
    recorded = {file: file.stat().st_mtime_ns for file in (tmp_path / "records").rglob("*")}
    recorded = {file: time for file, time in recorded.items() if file.is_file()}
    kept = []

    def emit_event(event):
        if isinstance(event, State) and event.name == "gathering":
            kept.append({file: file.stat().st_mtime_ns for file in recorded})

    assert go(source, tmp_path, emit_event, block_rows=60, **workload).files[0].sha256 == expected
    assert len(recorded) >= 5
    assert kept == [recorded]


def test_a_full_matrix_that_is_computed_sooner_than_brought_back_keeps_nothing_and_begins_anew(ray_here, tmp_path):
    source = saved(ROWS, tmp_path)
    expected = go(source, tmp_path / "other", full=True, block_rows=60).files[0].sha256
    with pytest.raises(Stopped):
        go(source, tmp_path, stop_at(300), full=True, block_rows=60)
    assert not [path for path in (tmp_path / "records").rglob("*") if path.is_file()]
    manifest = go(source, tmp_path, full=True, block_rows=60)
    assert manifest.files[0].sha256 == expected
    assert manifest.measures["blocks_found"] == 0


def test_a_full_matrix_that_was_damaged_while_away_is_computed_again(ray_here, tmp_path):
    source = saved(WIDE, tmp_path)
    with pytest.raises(Stopped):
        go(source, tmp_path, stop_at(300), full=True, block_rows=60)
    parts = [path for path in (tmp_path / "records").rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert len(parts) >= 5
    for part in parts[::2]:
        part.write_bytes(part.read_bytes()[:-1] + b"\1")
    go(source, tmp_path, full=True, block_rows=60)
    found = np.load(tmp_path / "result" / "similarity.npy")
    assert np.array_equal(found, score_rows(WIDE, range(600)))


def test_more_neighbors_than_there_are_rows_are_refused(ray_here, tmp_path):
    with pytest.raises(
        InvalidInput, match="600 neighbors of each row are more than the 599 other rows of a matrix of 600"
    ):
        go(saved(ROWS, tmp_path), tmp_path, top_k=600)
    assert not (tmp_path / "result").exists()


def test_the_first_bad_row_of_the_whole_matrix_is_named(ray_here, tmp_path):
    rows = ROWS.copy()
    rows[[250, 599], 3] = np.inf
    with pytest.raises(InvalidInput, match=r"row 250 of the matrix \(counted from 0\) holds NaN or infinity"):
        go(saved(rows, tmp_path), tmp_path, top_k=3)


def test_queries_are_aligned_with_the_matrix_by_name_and_both_are_printed_first(ray_here, tmp_path, capfd):
    places = {}
    for channel, order in (("matrix", [0, 1, 2]), ("queries", [2, 0, 1])):
        path = tmp_path / channel / "m.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"abc"[i]: ROWS[:5, i] for i in order}), path)
        places[channel] = Source(channel=channel, place=Place(path, tmp_path / f"{channel}-scratch", "algo-1"))
    go(places["matrix"], tmp_path, queries=places["queries"], full=True)
    scores = np.load(tmp_path / "result" / "similarity.npy")
    np.testing.assert_array_equal(scores, scores_between(ROWS[:5, :3], ROWS[:5, :3]))
    printed = capfd.readouterr().err
    assert f"raysm: matrix: 5 rows x 3 columns (a, b, c), {ROWS.dtype}" in printed
    assert f"raysm: queries: 5 rows x 3 columns (a, b, c), {ROWS.dtype}" in printed

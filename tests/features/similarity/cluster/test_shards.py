import numpy as np
import pyarrow as pa
import pytest

from raysm.errors import InstanceLost, InvalidInput
from raysm.features.similarity.cluster.layout import Layout, ShardedRows
from raysm.features.similarity.cluster.reading.matrix import Location, Source
from raysm.features.similarity.cluster.shards import (
    RowRun,
    ShardFile,
    ShardReport,
    join_reports,
    report_files,
)
from raysm.features.similarity.cluster.tiling import DENSE, GPU


def a_file(name, rows, columns=4, dtype="float32", ids=None):
    return ShardFile(name=name, rows=rows, columns=columns, dtype=np.dtype(dtype), ids=ids)


def reports(**files):
    return [
        ShardReport(host=host.replace("_", "-"), files=tuple(found))
        for host, found in files.items()
    ]


def joined(**files):
    found = reports(**files)
    return join_reports(found, [one.host for one in found], Source(channel="matrix"))


def test_rows_are_in_the_natural_order_of_all_names_and_neighbours_on_one_instance_are_one_run():
    index = joined(
        algo_1=[a_file("part-2", 5), a_file("part-3", 4), a_file("part-11", 2)],
        algo_2=[a_file("part-10", 7)],
        algo_3=[],
    )
    assert (index.rows, index.columns, index.names) == (
        18,
        4,
        ["part-2", "part-3", "part-10", "part-11"],
    )
    runs = {shard.host: shard.runs for shard in index.shards}
    assert runs == {
        "algo-1": (RowRun(0, 0, 9), RowRun(16, 9, 2)),
        "algo-2": (RowRun(9, 0, 7),),
        "algo-3": (),
    }


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"algo_1": [], "algo_2": []}, "no files"),
        ({"algo_1": [a_file("a", 1)], "algo_2": [a_file("a", 1)]}, "a .*algo-1 .*algo-2"),
        (
            {"algo_1": [a_file("a", 1)], "algo_2": [a_file("b", 1, columns=5)]},
            "b .* 5 columns, a .* 4",
        ),
        (
            {
                "algo_1": [a_file("a", 1, ids=pa.int64())],
                "algo_2": [a_file("b", 1, ids=pa.string())],
            },
            "the ids of b",
        ),
        ({"algo_1": [a_file("a", 0)]}, "hold no rows"),
        (
            {"algo_1": [a_file("p-00-of-03.npy", 1)], "algo_2": [a_file("p-02-of-03.npy", 1)]},
            "has file 1 of p-",
        ),
        ({"algo_1": [a_file("p-1-of-3.npy", 1), a_file("p-2-of-3.npy", 1)]}, "has file 3 of p-"),
    ],
)
def test_what_makes_no_matrix_is_said_by_name(files, said):
    with pytest.raises(InvalidInput, match=said):
        joined(**files)


def test_numbered_files_that_are_all_there_make_a_matrix():
    assert joined(algo_1=[a_file("p-1-of-2.npy", 1)], algo_2=[a_file("p-2-of-2.npy", 1)]).rows == 2


def test_an_instance_that_reports_nothing_is_missed():
    with pytest.raises(InstanceLost, match="algo-3"):
        join_reports(
            reports(algo_1=[a_file("a", 1)], algo_2=[]),
            ["algo-1", "algo-2", "algo-3"],
            Source(channel="matrix"),
        )


def test_a_file_that_is_no_matrix_is_told_with_its_instance(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"no")
    with pytest.raises(InvalidInput, match=r"algo-2.* a\.npy"):
        report_files(
            Source(channel="matrix", location=Location(tmp_path, tmp_path / "scratch", "algo-2"))
        )


ROWS = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


@pytest.fixture
def channel(base, request):
    # Another for each test: a process maps what lies at one place once.
    folder = base / "input" / "data" / request.node.name.partition("[")[0]
    folder.mkdir(parents=True)
    for name, start, stop in (("part-2", 0, 20), ("part-10", 20, 50)):
        np.save(folder / f"{name}.npy", ROWS[start:stop])
    return folder


def load(channel):
    return ShardedRows(Source(channel=channel.name, sharded=True))


def test_the_first_bad_row_is_named_with_its_file(channel):
    bad = ROWS[20:].copy()
    bad[[7, 3], 0] = np.nan
    np.save(channel / "part-10.npy", bad)
    rows = load(channel)
    shape = rows.shape(np.dtype(np.float32), sparse=False)
    with pytest.raises(InvalidInput, match="row 23 .*part-10.npy"):
        list(rows.prepared_parts(shape, "the matrix"))


def test_rows_on_an_instance_without_a_gpu_are_left_to_cpus_and_the_instance_is_named(channel):
    rows = load(channel)
    assert Layout(rows).without_gpus == "algo-1 has rows of a sharded matrix and no GPU"
    # As if the instance had more GPUs than CPUs: each task takes one of both.
    rows.gpus = {"algo-1": 99}
    assert Layout(rows).without_gpus == ""
    assert Layout(rows).tasks_at_once(GPU) == rows.slots == Layout(rows).tasks_at_once(DENSE)

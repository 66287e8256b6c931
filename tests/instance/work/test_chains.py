"""Every workload's result is an input of every workload that reads its input."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.core.protocol.events import TABLE, Trial, Trials
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import VALUE, Manifest
from raysm.core.request import Cluster, Input, JobRequest
from raysm.features.batch.cluster.formats import check_inputs, make_reader
from raysm.features.batch.cluster.pieces import survey
from raysm.features.grid.row_results import write_tables
from raysm.features.similarity.cluster.modes.full import write_ids
from raysm.features.similarity.cluster.reading import files
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import open_matrix
from raysm.features.sweep.runner import to_table
from raysm.instance.work.blocks import file_blocks
from raysm.instance.work.file_names import data_files, input_files
from raysm.instance.work.parquet import write_parquet
from raysm.instance.work.runner import write_manifest
from tests.support.batches import pack, run
from tests.support.driving import drive, pack_script
from tests.support.payloads import pack_payload

ROWS, K = 6, 2

NEIGHBORS = pa.table(
    {
        "row": np.arange(ROWS),
        "neighbors": pa.array(
            [[(row + 1) % ROWS, (row + 2) % ROWS] for row in range(ROWS)], pa.list_(pa.int64(), K)
        ),
        "similarities": pa.array(
            [[0.9, 0.1 * row] for row in range(ROWS)], pa.list_(pa.float32(), K)
        ),
    }
)
PREDICTIONS = pa.table(
    {
        "file": ["a.csv"] * ROWS,
        "row": range(ROWS),
        "y": np.linspace(0, 1, ROWS),
        "label": ["x"] * ROWS,
    }
)
TRIALS = [
    Trial(number=number, status="done", params={"lr": 0.1 * number}, value=1.0)
    for number in range(ROWS)
]


def table(folder, name, content):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    write_parquet(
        folder / name,
        content.schema,
        [[content[name].combine_chunks() for name in content.column_names]],
    )


def script(folder):
    np.save(folder / "matrix.npy", np.eye(ROWS, dtype=np.float32))


def function(folder):
    script(folder)
    (folder / VALUE).write_bytes(b"pickled")


def neighbors(folder):
    table(folder, "neighbors.parquet", NEIGHBORS)


def sharded_neighbors(folder):
    for part in (0, 1):
        table(folder, f"neighbors/part-{part}.parquet", NEIGHBORS.slice(part * 3, 3))


def pairs(folder):
    table(
        folder,
        "pairs.parquet",
        pa.table({"row": [0, 1], "neighbor": [1, 2], "similarity": [0.5, 0.25]}),
    )


def full(folder):
    np.save(folder / "similarity.npy", np.eye(ROWS, dtype=np.float32))
    write_ids(folder / "ids.parquet", pa.array([f"id-{row}" for row in range(ROWS)]))


def batch(folder):
    for part in (0, 1):
        table(folder, f"predictions/part-00000{part}.parquet", PREDICTIONS.slice(part * 3, 3))


def sweep(folder):
    Trials(metric="loss", mode="min", trials=tuple(TRIALS), best=0).write(folder)
    table(folder, TABLE, to_table(TRIALS))


def grid(folder):
    write_tables(
        iter([PREDICTIONS.add_column(0, "key", [["oregon"] * ROWS])]), folder / "table.parquet"
    )


RESULTS = [script, function, neighbors, sharded_neighbors, pairs, full, batch, sweep, grid]


def left_by(result, folder):
    """Write a result into a folder, with the manifest that its job would write."""
    folder.mkdir(parents=True, exist_ok=True)
    result(folder)
    # A function's job and a grid's table have none.
    if result not in (function, grid):
        request = JobRequest(name="a-job", workload=raysm.Script("main.py"), cluster=Cluster())
        write_manifest(request, folder, instances=("algo-1", "algo-2"), phases_s={})
    return folder


def first_column(batch):
    return {"first": [str(values[0]) for values in zip(*batch.values(), strict=True)]}


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_a_batch_reads_every_result_and_no_file_that_only_describes_it(base, result):
    folder = left_by(result, Paths(base).channel("data"))
    predictor = raysm.Batch(first_column, batch_size=4)
    pack(predictor, base)
    workload = predictor.workload()
    check_inputs(workload, {"data": folder})
    assert not {"manifest.json", "trials.json", "ids.parquet", VALUE} & {
        block.name for block in file_blocks("data")
    }
    kind, pieces, columns = survey(workload, "data", lambda event: None)
    reader = make_reader(kind, columns)
    batches = [batch for piece in pieces for batch in reader.batches(folder, piece.span, 4, 1)]
    assert sum(len(next(iter(batch.values()))) for batch in batches) == (
        2 if result is pairs else ROWS
    )


def test_a_batch_of_predictions_names_its_records_as_the_first_one_did(base, tmp_path):
    left_by(batch, Paths(base).channel("data"))
    outcome, _ = run(
        raysm.Batch(first_column, batch_size=4, keep=["label"]), base, tmp_path / "model", here=True
    )
    found = pa.concat_tables(
        [pq.read_table(tmp_path / "model" / file.name) for file in outcome.files]
    )
    assert found.select(["file", "row", "label"]).equals(
        PREDICTIONS.select(["file", "row", "label"])
    )


def test_what_describes_a_result_is_no_data_and_a_users_file_of_that_name_is(tmp_path):
    names = [name for name, _ in data_files(left_by(sweep, tmp_path / "sweep"))]
    assert names == [TABLE]
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("manifest.json", "trials.json"):
        (mine / name).write_text(json.dumps({"images": [name]}))
    for name in ("ids.parquet", VALUE):
        (mine / name).write_bytes(b"")
    assert [name for name, _ in input_files(mine)] == [
        "ids.parquet",
        "manifest.json",
        "trials.json",
    ]
    # The value of a function is the input of who asks for nothing else.
    (tmp_path / "value").mkdir()
    (tmp_path / "value" / VALUE).write_bytes(b"pickled")
    assert [name for name, _ in input_files(tmp_path / "value")] == [VALUE]
    assert [name for name, _ in data_files(mine / "manifest.json")] == ["manifest.json"]


SIMILARITIES = {
    neighbors: {"columns": ["similarities"], "id_column": "row"},
    sharded_neighbors: {"columns": ["similarities"], "id_column": "row"},
    pairs: {"columns": ["similarity"], "id_column": ["row", "neighbor"]},
    batch: {"columns": ["y"], "id_column": ["file", "row"]},
    sweep: {"columns": ["params.lr", "value"], "id_column": "number"},
    grid: {"columns": ["y"], "id_column": ["key", "row"]},
}
"""The columns of each table that are the features, and those that name its rows."""


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_a_similarity_reads_every_result(tmp_path, result):
    folder = left_by(result, tmp_path / "matrix")
    workload = raysm.Similarity(top_k=1, **SIMILARITIES.get(result, {}))
    files.check_inputs(workload, {"matrix": folder})
    matrix = open_matrix(folder, tmp_path / "scratch", Selection.of(workload))
    rows = 2 if result is pairs else ROWS
    columns = {neighbors: K, sharded_neighbors: K, pairs: 1, batch: 1, sweep: 2, grid: 1}.get(
        result, ROWS
    )
    assert (matrix.rows, matrix.columns) == (rows, columns)


def next_input(base, channel, folder):
    """Make what a job left the input of the next one, which has nothing else."""
    paths = Paths(base)
    left = folder / "left"
    shutil.move(paths.model, left)
    shutil.rmtree(paths.payload)
    shutil.rmtree(paths.channel("any").parent, ignore_errors=True)
    shutil.copytree(left, paths.channel(channel))
    paths.model.mkdir()


@pytest.mark.long
def test_results_of_jobs_go_from_one_to_the_next(address, base, tmp_path):
    paths = Paths(base)
    steps = [
        raysm.Similarity(top_k=2),
        raysm.Batch(first_column, batch_size=4, keep=["similarities"]),
        raysm.Similarity(top_k=1, columns=["similarities"], id_column=["file", "row"]),
        raysm.Batch(first_column, batch_size=4),
    ]
    pack_script(
        paths,
        tmp_path,
        f"import numpy, os\nnumpy.save(os.environ['SM_MODEL_DIR'] + '/m.npy', numpy.eye({ROWS}))",
    )
    paths.model.mkdir()
    done, _ = drive(paths, tmp_path, SM_MODEL_DIR=str(paths.model))
    for number, step in enumerate(steps):
        assert done.returncode == 0, done.stderr
        folder = tmp_path / str(number)
        folder.mkdir()
        channel = "matrix" if isinstance(step, raysm.Similarity) else "data"
        next_input(base, channel, folder)
        if isinstance(step, raysm.Similarity):
            inputs = {"matrix": Input("/data")}
            pack_payload(JobRequest(name="job", workload=step, inputs=inputs), paths.payload)
        else:
            pack(step, base)
        done, _ = drive(paths, folder)
    assert done.returncode == 0, done.stderr
    found = pa.concat_tables(
        [pq.read_table(paths.model / file.name) for file in Manifest.read(paths.model).files]
    )
    assert found["row"].to_pylist() == list(range(ROWS))

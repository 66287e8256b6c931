"""Tests of ``raysm.cli.report``."""

import ast
import contextlib
import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.display import Times
from raysm.cli.report import print_metrics, print_result
from raysm.core.client.job.handle import attach
from raysm.core.client.results.result import Result
from raysm.core.client.storage.s3 import Storage
from raysm.core.protocol import events
from raysm.core.protocol.result import ResultFile
from tests.support.client_jobs import leave, manifest
from tests.support.commands import tell

NEIGHBORS = ResultFile(
    name="neighbors.parquet",
    shape=(1797, 10),
    units=("rows", "neighbors"),
    bytes=251_580,
    sha256="0",
    how_to_read='import pyarrow.parquet as pq; table = pq.read_table("neighbors.parquet")',
)
IDS = ResultFile(
    name="ids.parquet",
    shape=(1797,),
    units=("rows",),
    bytes=9599,
    sha256="0",
    how_to_read="rm -rf ~",
)


def result_of(folder, *files, summary=""):
    phases_s = {"load": 0.25, "similarity": 1.5}
    return Result(folder, manifest(*files, phases_s=phases_s, summary=summary))


TIMES = Times(started_s=100.0, sent_s=101.0, formed_s=104.0, done_s=110.0, ended_s=112.34)


def said(result, **how):
    out = io.StringIO()
    print_result(Console(file=out, width=200), result, **how)
    return out.getvalue().splitlines()


def test_each_file_has_its_size_with_units_and_the_time_is_said_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said(result_of(tmp_path / "out", NEIGHBORS, IDS), times=TIMES) == [
        "result   out/neighbors.parquet: 1,797 rows x 10 neighbors, 251,580 bytes",
        'read it  import pyarrow.parquet as pq; table = pq.read_table("out/neighbors.parquet")',
        "result   out/ids.parquet: 1,797 rows, 9,599 bytes",
        'read it  import pyarrow.parquet as pq; table = pq.read_table("out/ids.parquet")',
        "time     12.3 s (preparing and sending 1.0 s, forming the cluster 3.0 s, starting the workload 4.2 s, "
        "load 0.2 s, similarity 1.5 s, storing and bringing the result 2.3 s)",
    ]


def test_the_parts_of_a_table_are_one_result_that_one_line_reads(tmp_path):
    names = ("predictions/part-000000.parquet", "predictions/part-000001.parquet")
    parts = [replace(NEIGHBORS, name=name, shape=(900,), units=("rows",)) for name in names]
    with contextlib.chdir(tmp_path):
        lines = said(result_of(tmp_path, *parts))
    assert lines[:-1] == [
        "result   predictions/: 2 parts, 1,800 rows, 503,160 bytes",
        'read it  import pyarrow.parquet as pq; table = pq.read_table("predictions")',
    ]


def test_the_line_that_reads_a_file_is_made_here_and_its_name_stays_a_string(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = 'a"); import os; os.system("evil.npy'
    file = ResultFile(
        name=name, shape=(), bytes=1, sha256="0", how_to_read="import os; os.system('evil')"
    )
    *_, line = (
        line for line in said(result_of(tmp_path / "out", file)) if line.startswith("read it")
    )
    call = ast.parse(line.removeprefix("read it").strip()).body[1].value
    assert call.args[0].value == f"out/{name}"
    assert "os.system('evil')" not in line


@pytest.mark.parametrize(
    ("workload", "keeps"),
    [
        (
            "script",
            "what the script writes into the folder $SM_MODEL_DIR or into its working folder",
        ),
        (
            "torch_script",
            "what rank 0 leaves in the folder $SM_MODEL_DIR, or in the one in which it runs",
        ),
    ],
)
def test_a_job_that_kept_nothing_is_told_how_to_keep_something(workload, keeps):
    expected = (
        f"completed in 15.0 s (preparing and sending 15.0 s); nothing was kept: a job keeps {keeps}"
    )
    assert said(
        None, workload=workload, times=Times(started_s=100.0, sent_s=115.0, ended_s=115.0)
    ) == [expected]


def test_a_job_without_a_result_says_what_else_it_left_and_how_to_fetch_it(remote, job):
    leave(remote, job, "data/raysm/failure.json", b"{}")
    for number in range(5):
        leave(remote, job, f"data/part-{number}.csv", b"1")
    state = job.describe().answer["CheckpointConfig"]["S3Uri"].rstrip("/")
    Storage(remote.service).write(f"{state}/algo-1/epoch.txt", b"7")
    assert said(None, workload="script", job=job)[-4:] == [
        f"data     part-0.csv, part-1.csv, part-2.csv, … in {job.outputs}/data/",
        f"fetch it raysm result {job.name} --what data --output DIR",
        f"state    algo-1/epoch.txt in {state}/",
        f"fetch it raysm result {job.name} --what state --output DIR",
    ]


def printed(remote, command, *argv):
    """Return what the command prints of the job that its arguments name."""
    out, arguments = io.StringIO(), parse([command, *argv])
    print_metrics(arguments, attach(arguments.job, remote.service), Console(file=out, width=80))
    return out.getvalue()


@pytest.fixture
def trained(remote, job):
    """A job with two steps, and what its instances measured."""
    tell(
        remote,
        job,
        events.Metric(name="loss", value=1.0, step=1, time_s=10.0),
        events.Metric(name="val/loss", value=1.5, step=1, time_s=10.0),
        events.Metric(name="cpu_percent", value=50.0, host="algo-2", time_s=15.0),
        events.Metric(name="cpu_percent", value=100.0, host="algo-2", time_s=25.0),
        events.Metric(name="loss", value=0.5, step=2, time_s=20.0),
    )
    return job


def test_metrics_are_a_row_for_each_step_and_a_column_for_each_name(remote, trained):
    assert [line.split() for line in printed(remote, "metrics", trained.name).splitlines()] == [
        ["step", "loss", "val/loss"],
        ["1", "1", "1.5"],
        ["2", "0.5"],
    ]


def test_as_json_a_value_that_is_nan_is_a_text(remote, job, capsys):
    tell(remote, job, events.Metric(name="loss", value=math.nan, step=1))
    printed(remote, "metrics", "--json", job.name)
    (metric,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert metric["value"] == "NaN"


def test_telemetry_is_what_it_comes_to_for_each_instance(remote, trained):
    assert [
        line.split()
        for line in printed(remote, "metrics", "--telemetry", trained.name).splitlines()
    ] == [
        ["instance", "metric", "values", "mean", "most", "last"],
        ["algo-2", "cpu_percent", "2", "75", "100", "100"],
    ]
    assert len(printed(remote, "metrics", "--all", trained.name).splitlines()) == 5


def test_instances_are_listed_by_their_numbers(remote, job):
    hosts = [f"algo-{number}" for number in (10, 2, 1)]
    tell(remote, job, *(events.Metric(name="cpu_percent", value=5, host=host) for host in hosts))
    lines = printed(remote, "metrics", "--telemetry", job.name).splitlines()[1:]
    assert [line.split()[0] for line in lines] == hosts[::-1]


def test_metrics_are_chosen_by_their_names(remote, trained):
    assert printed(remote, "metrics", "--name", "val/*", trained.name).split() == [
        "step",
        "val/loss",
        "1",
        "1.5",
    ]
    said = printed(remote, "metrics", "--name", "lss", "--name", "acc", trained.name)
    assert said == f"no metric is named lss or acc; {trained.name} has loss, val/loss\n"

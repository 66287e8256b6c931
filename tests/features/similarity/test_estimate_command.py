import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.core.client.results.result import Result
from raysm.core.protocol.result import Manifest
from raysm.errors import InvalidRequest
from raysm.features.similarity import estimate_command as estimating
from raysm.features.similarity.cluster.estimate import Rates, estimate, predict
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import open_matrix
from raysm.features.similarity.cluster.run import Report
from raysm.features.similarity.cluster.tasks import Part
from raysm.features.similarity.request import Similarity
from raysm.instance.work.row_blocks import RowBlock

RATES = Rates(engine="an engine", rows=3e6, pairs=4.5e7)


def modelled(path, workload, slots, instances=1, *, shared_out=False, rates=RATES):
    """Return what ``estimate`` would of a machine with these rates: to measure takes all cores for seconds."""
    matrix = open_matrix(path, path.parent, Selection.of(workload))
    return predict(workload, matrix, rates, slots, instances, shared_out=shared_out)


def test_an_estimate_has_time_and_money(tmp_path, capsys):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((600, 8)))
    options = [
        "--top-k",
        "3",
        "--instances",
        "2",
        "--price-per-hour",
        "3.6",
        "--estimate",
        "--json",
    ]
    estimating.run(parse(["similarity", str(tmp_path / "m.npy"), *options]), Console())
    found = json.loads(capsys.readouterr().out)
    assert list(found["phases_s"]) == ["prepare", "similarity", "gathering"]
    assert found["usd"] == pytest.approx(2 * 0.001 * found["total_s"])
    assert found["price"] == "3.6 USD/h (--price-per-hour)"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["s3://b/m.npy"], "got s3://b/m.npy"),
        (["m.npy", "--queries", "q.npy"], "--queries"),
        (
            ["m.npy", "--instance-type", "ml.foo.4xlarge"],
            "'ml.foo.4xlarge'",
        ),
    ],
)
def test_what_cannot_be_measured_is_said(argv, message):
    with pytest.raises(InvalidRequest, match=message):
        estimating.run(parse(["similarity", *argv, "--top-k", "3", "--estimate"]), Console())


@pytest.fixture
def lines_of(tmp_path):
    """Return what an estimate says, line by line, of a matrix of so many rows."""

    def ask(rows, *options):
        np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((rows, 8)))
        said = io.StringIO()
        argv = ["similarity", str(tmp_path / "m.npy"), "--top-k", "3", "--estimate", *options]
        estimating.run(parse(argv), Console(file=said, width=500), modelled)
        return said.getvalue().splitlines()

    return ask


def test_an_estimate_for_a_type_counts_its_cores_and_says_whose_they_are(lines_of):
    _, _, cores, money = lines_of(1200, "--instance-type", "ml.c5.4xlarge", "--instances", "10")
    # 1,200 rows are too few for 160 cores; the seconds are those of the cores that have work.
    assert cores.startswith(
        "cores    160: 10 x 16 vCPUs of ml.c5.4xlarge, each assumed to be as fast as a core of this machine; only 3 of"
    )
    assert "10 x 0.816 USD/h (on demand in us-east-1, as of 2026-09)" in money


def test_an_estimate_says_which_price_is_missing_and_that_gpus_were_not_measured(lines_of):
    *_, cores, money = lines_of(600, "--instance-type", "ml.p5en.48xlarge")
    assert "192 vCPUs of ml.p5en.48xlarge" in cores
    assert "its GPUs were not measured" in cores
    assert (
        money == "money    unknown: no price of ml.p5en.48xlarge is at hand; give --price-per-hour"
    )


def test_of_a_choice_of_types_each_is_estimated_with_its_own_cores_and_price(
    lines_of, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raysm.toml").write_text('[cluster]\nalternatives = ["ml.g5.xlarge"]\n')
    lines = lines_of(600, "--instance-type", "ml.c5.4xlarge")
    at = lines.index("or       ml.g5.xlarge")
    assert "16 vCPUs of ml.c5.4xlarge" in lines[2]
    assert "4 vCPUs of ml.g5.xlarge" in lines[at + 3]
    assert "1 x 1.408 USD/h" in lines[-1]
    argv = ["similarity", str(tmp_path / "m.npy"), "--top-k", "3", "--estimate", "--json"]
    estimating.run(parse([*argv, "--instance-type", "ml.c5.4xlarge"]), Console(), modelled)
    found = json.loads(capsys.readouterr().out)
    assert (found["instance_type"], [other["slots"] for other in found["alternatives"]]) == (
        "ml.c5.4xlarge",
        [4],
    )


MEASURES = {"block_s": 0.2, "block_max_s": 0.5, "pairs_per_core_s": 2e7, "rows_per_core_s": 1e6}


def pilot(folder, measures=MEASURES, engines=("int8 AMX",), **workload):
    manifest = Manifest(
        job="pilot-1",
        workload={"top_k": 3, "threshold": None, "full": False, **workload},
        inputs={"matrix": {"columns": 8}},
        files=(),
        versions={},
        instances=("algo-1",),
        phases_s={},
        engines=engines,
        measures=measures,
    )
    return Result(folder, manifest)


def test_the_speed_of_a_core_is_that_of_the_blocks_of_a_finished_job(tmp_path):
    rates = estimating.rates_of(pilot(tmp_path), Similarity(top_k=3))
    assert rates == Rates(engine="int8 AMX", rows=1e6, pairs=2e7, columns=8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"measures": {}}, "timed its blocks"),
        ({"engines": ("float16 CUDA (NVIDIA H200)",)}, "GPUs"),
        ({"top_k": 5}, "kept top_k=5, and this one keeps top_k=3"),
        ({"top_k": None, "full": True}, "kept full=True"),
    ],
)
def test_a_job_that_did_other_work_says_nothing_about_this_one(tmp_path, fields, message):
    with pytest.raises(InvalidRequest, match=message):
        estimating.rates_of(pilot(tmp_path, **fields), Similarity(top_k=3))


def test_an_estimate_by_a_finished_job_measures_nothing_and_takes_its_speed(tmp_path):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((600, 8)))
    rates = Rates(engine="of a job", rows=1e6, pairs=2e7, columns=8)
    found = [
        estimate(tmp_path / "m.npy", Similarity(top_k=3), 1, rates=each)
        for each in (rates, replace(rates, pairs=1e7))
    ]
    assert found[0].engine == "of a job"
    assert found[1].phases_s["similarity"] == pytest.approx(2 * found[0].phases_s["similarity"])


def test_a_job_with_other_columns_is_refused_as_a_measure(tmp_path):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((600, 8)))
    rates = Rates(engine="of a job", rows=1e6, pairs=2e7, columns=64)
    with pytest.raises(InvalidRequest, match="64 columns"):
        estimate(tmp_path / "m.npy", Similarity(top_k=3), 1, rates=rates)


def test_measured_by_without_estimate_is_refused():
    with pytest.raises(SystemExit):
        parse(["similarity", "m.npy", "--top-k", "3", "--measured-by", "pilot"])


def test_blocks_are_timed_by_instance_and_give_the_speed_of_a_core():
    report = Report(emit_event=lambda event: None)
    report.add_prepared(RowBlock(0, 300), Part(arrays={}, peaks={"algo-1": 1}, seconds=0.1))
    for host, seconds in (("algo-1", 1.0), ("algo-1", 2.0), ("algo-2", 5.0)):
        report.add_compared(100.0, Part(arrays={}, peaks={host: 1}, seconds=seconds))
    assert report.timings() == {
        "block_s": 2.0,
        "block_max_s": 5.0,
        "block_s_algo-1": 1.5,
        "block_s_algo-2": 5.0,
        "pairs_per_core_s": 50.0,
        "rows_per_core_s": 3000.0,
    }

import io
import json

import numpy as np
import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.errors import InvalidRequest
from raysm.features.similarity import estimate_command as estimating
from raysm.features.similarity.cluster.estimate import Rates, predict
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import open_matrix

RATES = Rates(engine="an engine", rows=3e6, pairs=4.5e7)


def modelled(path, workload, slots, instances=1, *, shared_out=False):
    """Return what ``estimate`` would of a machine with these rates: to measure takes all cores for seconds."""
    matrix = open_matrix(path, path.parent, Selection.of(workload))
    return predict(workload, matrix, RATES, slots, instances, shared_out=shared_out)


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

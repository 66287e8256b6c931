import json

import numpy as np
import pytest
from rich.console import Console

from raysm.cli import estimating
from raysm.cli.arguments import parse
from raysm.errors import InvalidRequest


def test_an_estimate_has_time_and_money(tmp_path, capsys):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((600, 8)))
    options = ["--top-k", "3", "--instances", "2", "--price-per-hour", "3.6", "--estimate", "--json"]
    estimating.run(parse(["similarity", str(tmp_path / "m.npy"), *options]), Console())
    found = json.loads(capsys.readouterr().out)
    assert list(found["phases_s"]) == ["prepare", "similarity", "gathering"]
    # Two instances at 0.001 USD a second, and the seconds in which they form a cluster.
    assert found["usd"] == pytest.approx(2 * 0.001 * (found["total_s"] + estimating.FORMING_S))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["s3://b/m.npy"], "measures a matrix that is here, not s3://b/m.npy"),
        (["m.npy", "--queries", "q.npy"], "leave --queries away"),
        (["m.npy", "--on", "aws", "--instance-type", "ml.none"], "does not know how many cores ml.none has"),
    ],
)
def test_what_cannot_be_measured_is_said(argv, message):
    with pytest.raises(InvalidRequest, match=message):
        estimating.run(parse(["similarity", *argv, "--top-k", "3", "--estimate"]), Console())

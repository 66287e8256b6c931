"""``raysm run --ray-init``: the cluster is joined before the script begins, which may ask it at once."""

import pytest

from raysm.cli.main import main
from raysm.local.instances.process import can_mount
from tests.support.aws_samples import SAMPLE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("home")]

KINDS = [
    pytest.param("namespace", marks=pytest.mark.namespace),
    pytest.param(
        "process",
        marks=[
            pytest.mark.soak,
            pytest.mark.skipif(not can_mount(), reason="needs the right to mount"),
        ],
    ),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_of_aws_s_samples_runs_unmodified_on_two_instances(tmp_path, capfd, kind):
    (tmp_path / "sample.py").write_text(SAMPLE)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").write_text("1\n\n2\n")
    (tmp_path / "rows" / "b.csv").write_text("3\n")
    where = ("--instances", "2", "--instance-kind", kind, "--output", str(tmp_path / "out"))
    rows = ("--input", f"processing={tmp_path / 'rows'}")
    code = main(["run", "--ray-init", *where, *rows, str(tmp_path / "sample.py")])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    # Of the cluster's resources and nodes, asked for before anything in the script has called
    # ray.init().
    assert "SAW 1 2" in printed.out + printed.err
    assert (tmp_path / "out" / "counts.txt").read_text() == "[2, 1]"

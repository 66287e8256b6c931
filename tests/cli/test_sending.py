"""What the commands that send a job say before anything is sent."""

import io
import json

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.sending import run
from raysm.errors import InvalidRequest, RaysmError

pytestmark = pytest.mark.usefixtures("home")


def sent(*argv):
    out = io.StringIO()
    run(parse(argv), Console(file=out, width=200))
    return out.getvalue()


def resources(printed):
    return printed["request"]["ResourceConfig"]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("print('hello')\n")
    return str(path)


def test_a_dry_run_prints_the_call_and_what_would_be_done(script, capsys):
    sent("run", script, "--dry-run")
    shown = capsys.readouterr()
    assert resources(json.loads(shown.out))["InstanceCount"] == 1
    assert all(line.startswith("would ") for line in shown.err.splitlines() if not line.startswith("raysm:"))


def test_with_json_it_prints_the_request_which_may_be_given_back(script, tmp_path, capsys):
    sent("run", script, "--instances", "2", "--dry-run", "--json")
    request = tmp_path / "job.json"
    request.write_text(capsys.readouterr().out)
    sent("submit", "--request", str(request), "--dry-run")
    assert resources(json.loads(capsys.readouterr().out))["InstanceCount"] == 2


def test_a_result_that_could_not_be_written_is_said_first(script, tmp_path):
    (tmp_path / "out").write_text("in the way")
    with pytest.raises((InvalidRequest, RaysmError), match="out"):
        sent("run", script, "--output", str(tmp_path / "out"))

"""The commands about the embedded SageMaker; its server is real."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from raysm.cli import about_jobs, local_server
from raysm.cli.arguments import parse
from raysm.cli.local_server import _down
from raysm.contract.home import VARIABLE, ServerRecord
from raysm.errors import InvalidRequest
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import Server

FOREVER = "echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The server of the home that the commands use."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "home"))
    running = Server(tmp_path / "home", "--instance-kind", "process", "--cores", "2", "--stop-grace-s", "1")
    try:
        running.make_bucket()
        yield running
    finally:
        running.kill()
    assert_nothing_left(tmp_path / "home", running.process.pid)


def command(*argv):
    """Run a command here; return what it printed through its console."""
    written = io.StringIO()
    arguments, console = parse(argv), Console(file=written, width=200)
    (local_server if arguments.command == "local" else about_jobs).run(arguments, console)
    return written.getvalue()


def test_down_names_the_active_jobs_and_ends_them_with_force_alone(server, capsys):
    server.train("first", FOREVER)
    server.train("second", FOREVER, count=2)
    server.says("first", "ready")
    with pytest.raises(InvalidRequest, match="2 jobs are active: first, second; .*--force"):
        command("local", "down")
    with pytest.raises(InvalidRequest):
        command("local", "down", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["running"], answer["ended"], answer["active_jobs"]) == (True, False, ["first", "second"])
    assert server.process.poll() is None
    assert "first, second" in command("local", "down", "--force")
    assert server.process.wait(20) == 0


def test_down_without_active_jobs_needs_no_force(server):
    server.train("done", "exit 0")
    server.ended("done")
    assert "True" in command("local", "down")
    assert server.process.wait(20) == 0


def test_a_server_that_ended_by_itself_meanwhile_need_not_be_ended():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    assert _down(ServerRecord(pid=ended.pid, port=1, started_s=0.0, version="1")) is False

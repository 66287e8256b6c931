"""raysm tunnel: prints where it leads, and ends with its job; both commands say what cannot be before they begin."""

import io
import json
import os
import socket
import subprocess
import sys

import pytest
from rich.console import Console

from raysm.cli import entering
from raysm.cli.arguments import parse
from raysm.errors import InvalidRequest
from tests.support.echo import ECHO, exchange
from tests.support.sagemaker_server import SOON_S, Server, port_of

LET_IN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("home"), "--stop-grace-s", "2")
    try:
        running.make_bucket()
        yield running
        running.end()
    finally:
        running.kill()


def test_a_tunnel_is_told_and_ends_with_its_job(server):
    server.train("echo", ECHO, **LET_IN)
    port = port_of(server, "echo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "raysm", "tunnel", "echo", str(port), "--local", str(local), "--json"],
        env={**os.environ, "RAYSM_HOME": str(server.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        told = json.loads(process.stdout.readline())
        assert told == {"job": "echo", "address": f"127.0.0.1:{local}", "port": local}
        assert exchange(("127.0.0.1", local), b"abc") == b"abc"
        server.sm.stop_training_job(TrainingJobName="echo")
        assert process.wait(SOON_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def entered(remote, *argv):
    return entering.run(parse(argv), Console(file=io.StringIO()), remote.service)


@pytest.mark.parametrize("command", [("tunnel", "8265"), ("shell",)])
def test_a_job_that_does_not_train_is_not_entered(remote, job, command):
    verb, *words = command
    with pytest.raises(InvalidRequest, match=f"{job.name} is .*: it can be entered while it is Training"):
        entered(remote, verb, job.name, *words)


def test_an_instance_that_the_job_does_not_have_is_said_by_both(remote, job):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = "Training"
    for verb, *words in (("tunnel", "8265"), ("shell",)):
        with pytest.raises(InvalidRequest, match="there is no instance 'algo-9'"):
            entered(remote, verb, job.name, *words, "--instance", "algo-9")

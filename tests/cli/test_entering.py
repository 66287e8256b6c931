"""raysm tunnel: prints where it leads, and ends with its job."""

import json
import os
import socket
import subprocess
import sys

import pytest

from tests.support.echo import ECHO, exchange, port_of
from tests.support.sagemaker_server import SOON_S, Server

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

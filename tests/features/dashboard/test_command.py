"""The command ``raysm dashboard``, against a service and a head of the test's own."""

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.core.protocol.events import State, line
from raysm.features.dashboard import command as dashboard
from tests.support.client_jobs import NOW_MS
from tests.support.echo import ECHO, exchange
from tests.support.pages import assert_printed, outputs
from tests.support.sagemaker_server import SOON_S, Server, port_of


@pytest.fixture
def running(remote, job):
    """A job whose dashboard has been announced; nothing here asks it."""
    remote.write_log(
        job.name, "algo-1", [(NOW_MS, line(State(name="dashboard", address="http://127.0.0.1:1")))]
    )
    return job


def interrupt():
    raise KeyboardInterrupt


def shown(remote, *argv, browse=pytest.fail, wait=interrupt):
    out = io.StringIO()
    arguments = parse(["dashboard", *argv])
    dashboard.run(arguments, Console(file=out, width=80), remote.service, browse=browse, wait=wait)
    return out.getvalue()


def test_it_prints_the_address_and_what_it_is_worth(remote, running):
    url, *rest = shown(remote, running.name, "--no-open").splitlines()
    assert urlsplit(url).hostname == "127.0.0.1"
    assert "it gives access without a password" in " ".join(rest)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_as_ctrl_c_does(remote, running, number):
    seen = []

    def wait():
        seen.append(Path(unquote(urlsplit(pages[0]).path)).exists())
        os.kill(os.getpid(), number)
        time.sleep(SOON_S)

    pages = []
    shown(remote, running.name, browse=pages.append, wait=wait)
    assert seen == [True]
    assert not Path(unquote(urlsplit(pages[0]).path)).exists()


def test_the_browser_is_started_with_a_file_that_others_cannot_read(remote, running):
    seen = []

    def browse(url):
        path = Path(unquote(urlsplit(url).path))
        seen.append((path, stat.S_IMODE(path.stat().st_mode), path.read_text()))

    url = shown(remote, running.name, browse=browse).splitlines()[0]
    ((path, mode, page),) = seen
    assert mode == 0o600
    assert url in page
    assert url not in path.as_uri()
    assert not path.exists()


def test_a_program_reads_the_address_as_json(remote, running, capsys):
    shown(remote, running.name, "--no-open", "--json")
    assert json.loads(capsys.readouterr().out)["url"].startswith("http://127.0.0.1:")


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
    command = [sys.executable, "-m", "raysm", "tunnel", "echo"]
    environ = {**os.environ, "RAYSM_HOME": str(server.home)}
    process = subprocess.Popen(
        [*command, str(port), "--local", str(local), "--json"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        told = json.loads(process.stdout.readline())
        with subprocess.Popen(
            [*command, "8265"], env=environ, stdout=subprocess.PIPE, text=True
        ) as second:
            shown = second.stdout.readline()
            second.kill()
        assert_printed(outputs("guides/dashboard-tunnels.md")[0], shown)
        assert told == {"job": "echo", "address": f"127.0.0.1:{local}", "port": local}
        assert exchange(("127.0.0.1", local), b"abc") == b"abc"
        server.sm.stop_training_job(TrainingJobName="echo")
        assert process.wait(SOON_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

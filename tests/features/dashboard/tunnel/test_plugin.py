"""Tunnels and shells on AWS: the calls to Systems Manager, and the plugin that carries them."""

import json
import os
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

from raysm.core.client.service import Service
from raysm.errors import MissingDependency, ServiceError
from raysm.features.dashboard.tunnel.plugin import PluginAccess
from raysm.features.dashboard.tunnel.terminal import Terminal
from tests.support.echo import exchange
from tests.support.processes import is_running
from tests.support.sagemaker import aws, refusal

DEADLINE_S = 300.0

# Takes a session as AWS's plugin does: forwards a port, which echoes here, or runs the command
# between its own words.
PLUGIN = """
    import json, os, shlex, socket, subprocess, sys, threading

    if sys.argv[1:] == ["--version"]:
        print({version!r})
        sys.exit()
    with open({calls!r}, "a") as file:
        token = json.loads(os.environ[sys.argv[1]])["TokenValue"]
        print(json.dumps([os.getpid(), token, *sys.argv[1:]]), file=file)
    request = json.loads(sys.argv[5])
    print("\\nStarting session with SessionId: s-1", flush=True)
    if "command" in request["Parameters"]:
        subprocess.run(shlex.split(request["Parameters"]["command"][0]))
        print("\\nExiting session with sessionId: s-1.")
        sys.exit()
    server = socket.create_server(("127.0.0.1", 0))
    print("Port", server.getsockname()[1], "opened for sessionId s-1.", flush=True)
    print("Waiting for connections...", flush=True)

    def answer(connection):
        while data := connection.recv(65536):
            connection.sendall(data)

    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""


class Ssm:
    """Answers StartSession with what it was given, one after the other, then with a session."""

    meta = SimpleNamespace(endpoint_url="https://ssm.there")

    def __init__(self, *answers):
        self.answers, self.started, self.terminated = list(answers), [], []

    def start_session(self, **request):
        self.started.append(request)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return {"SessionId": "s-1", "TokenValue": "secret", "StreamUrl": "wss://there"}

    def terminate_session(self, **request):
        self.terminated.append(request["SessionId"])
        return {}


class Installed:
    """A scripted plugin in a folder, and access by it."""

    def __init__(self, folder):
        self.path, self.calls_path = folder / "session-manager-plugin", folder / "calls"
        self.write()

    def write(self, version="1.2.650.0", program=PLUGIN):
        text = textwrap.dedent(program).format(version=version, calls=str(self.calls_path))
        self.path.write_text(f"#!{sys.executable}\n{text}")
        self.path.chmod(0o755)

    def access(self, ssm=None, **options):
        ssm = ssm or Ssm()
        return PluginAccess(
            Service(aws(), clients=lambda name: ssm), which=lambda name: str(self.path), **options
        )

    def calls(self):
        """Return pid, token and arguments of each plugin that was started."""
        return [json.loads(line) for line in self.calls_path.read_text().splitlines()]


@pytest.fixture
def plugin(tmp_path):
    return Installed(tmp_path)


def test_a_tunnel_passes_bytes_both_ways_through_the_plugin(plugin):
    with plugin.access().open_tunnel("job", "algo-2", 8265, 0) as tunnel:
        assert exchange(("127.0.0.1", tunnel.port), os.urandom(1 << 20))
        pid = plugin.calls()[0][0]
        assert is_running(pid)
    assert not is_running(pid)


def test_the_plugin_is_called_as_the_aws_cli_calls_it_with_the_token_in_its_environment_alone(
    plugin,
):
    ssm = Ssm()
    with plugin.access(ssm).open_tunnel("job", "algo-2", 8265, 0):
        pass
    ((_, token, *arguments),) = plugin.calls()
    request = {
        "Target": "sagemaker-training-job:job_algo-2",
        "DocumentName": "AWS-StartPortForwardingSession",
        "Parameters": {"portNumber": ["8265"]},
        "Reason": "raysm",
    }
    assert ssm.started == [request]
    assert token == "secret"
    assert arguments[0] == "AWS_SSM_START_SESSION_RESPONSE"
    assert arguments[2:4] == ["StartSession", ""]
    assert json.loads(arguments[4]) == request
    assert arguments[5:] == ["https://ssm.there"]


def test_after_the_plugin_ended_the_same_local_port_leads_there_again(plugin):
    ssm = Ssm()
    with plugin.access(ssm).open_tunnel("job", "algo-1", 8265, 0) as tunnel:
        address = ("127.0.0.1", tunnel.port)
        assert exchange(address, b"before") == b"before"
        os.kill(plugin.calls()[0][0], 9)
        deadline_s = time.monotonic() + DEADLINE_S
        # Its death is seen at the next connection; one that comes before is closed.
        while (answer := ask(address, b"after")) != b"after":
            assert time.monotonic() < deadline_s
        assert answer == b"after"
    assert len(ssm.started) == 2
    assert not any(is_running(pid) for pid, *_ in plugin.calls())


def ask(address, data):
    try:
        return exchange(address, data)
    except OSError:
        return b""


def test_a_plugin_that_opens_no_port_is_reported_with_its_words_and_its_session_is_terminated(
    plugin,
):
    plugin.write(
        program="import sys; print({version!r} if '--version' in sys.argv else 'cannot open', {calls!r})"
    )
    ssm = Ssm()
    with pytest.raises(ServiceError, match="cannot open"):
        plugin.access(ssm).open_tunnel("job", "algo-1", 8265, 0)
    assert ssm.terminated == ["s-1"]


def test_an_agent_that_never_connects_is_reported_with_where_to_look(plugin):
    ssm = Ssm(refusal("TargetNotConnected", "x is not connected."))
    with pytest.raises(ServiceError, match="ssmmessages.*JOB/ALGO-N-TIME/ssm"):
        plugin.access(ssm, agent_s=-1).open_tunnel("job", "algo-1", 8265, 0)


@pytest.mark.parametrize("version", ["1.2.497.0", "1.1.61.0", "unknown"])
def test_a_plugin_that_takes_the_token_as_an_argument_is_refused(plugin, version):
    plugin.write(version)
    with pytest.raises(MissingDependency, match="newer"):
        plugin.access().check()


class Reader:
    """What a command writes to the user, who has no terminal."""

    def __init__(self):
        self.reader, writer = os.pipe()
        self.terminal = Terminal(os.open(os.devnull, os.O_RDONLY), writer)

    def text(self):
        os.close(self.terminal.stdout)
        os.close(self.terminal.stdin)
        with open(self.reader, "rb") as file:
            return file.read()


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_shows_its_output_alone_and_returns_its_exit_code(plugin, code):
    user, ssm = Reader(), Ssm()
    command = ["sh", "-c", f"echo 'it is'; echo here >&2; exit {code}"]
    assert plugin.access(ssm).run("job", "algo-1", command, user.terminal) == code
    assert user.text() == b"it is\nhere\n"
    assert ssm.started[0]["DocumentName"] == "AWS-StartInteractiveCommand"

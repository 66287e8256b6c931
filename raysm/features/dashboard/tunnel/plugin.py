"""Tunnels and shells on AWS, through AWS's session-manager-plugin.

raysm starts the session by the API and gives its token to the plugin, as the AWS CLI does:
https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from raysm.core.client.service import Service
from raysm.core.client.tunnel import LOOPBACK, Tunnel
from raysm.core.protocol.connections import connect_to_own
from raysm.errors import MissingDependency, ServiceError
from raysm.features.dashboard.tunnel.terminal import MarkedCommand, Terminal

NAME = "session-manager-plugin"
TOKEN_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
"""The variable that holds the session's token, instead of an argument that every user of the
machine can read."""
LAST_WITHOUT_VARIABLE = (1, 2, 497, 0)
"""Up to this version the plugin takes the token as an argument only (github.com/aws/aws-cli,
sessionmanager.py)."""
DOWNLOADS = "https://s3.amazonaws.com/session-manager-downloads/plugin/latest"
INSTALL = (
    "macOS: brew install --cask session-manager-plugin; Debian and Ubuntu: "
    f"curl -fo ssm.deb {DOWNLOADS}/ubuntu_64bit/session-manager-plugin.deb "
    "&& sudo dpkg -i ssm.deb (ubuntu_arm64 on ARM); RPM: "
    f"sudo dnf install -y {DOWNLOADS}/linux_64bit/session-manager-plugin.rpm (linux_arm64 on ARM)"
)
OPENED = re.compile(r"Port (\d+) opened for sessionId")
"""The plugin's output once it listens (github.com/aws/session-manager-plugin, portsession)."""
OPEN_S = 60.0
AGENT_S = 60.0
"""An agent that was just switched on takes some time to connect."""
AGENT_PAUSE_S = 1.0
CONNECT_S = 10.0
END_S = 5.0
NOT_CONNECTED = (
    "the agent of the instance has not started: the job's role needs the four permissions of "
    "ssmmessages (raysm doctor --policy role), and the agent reports errors in the log stream "
    "JOB/ALGO-N-TIME/ssm"
)


class PluginAccess:
    """Access to the instances of jobs on AWS; see ``InstanceAccess``."""

    def __init__(
        self,
        service: Service,
        *,
        which: Callable[[str], str | None] = shutil.which,
        agent_s: float = AGENT_S,
    ) -> None:
        self._service = service
        self._which = which
        self._agent_s = agent_s
        self._path = ""

    def check(self) -> None:
        path = self._which(NAME)
        if path is None:
            raise MissingDependency(
                f"tunnels and shells on AWS need AWS's {NAME}, which is not installed",
                remedy=INSTALL,
            )
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        version = tuple(int(number) for number in re.findall(r"\d+", done.stdout))
        if version <= LAST_WITHOUT_VARIABLE:
            raise MissingDependency(
                f"{path} has version {done.stdout.strip() or 'unknown'}, which shows the session's "
                "token to all users",
                remedy=f"install a newer one. {INSTALL}",
            )
        self._path = path

    def open_tunnel(self, job: str, host: str, port: int, local_port: int) -> Tunnel:
        forwarding = _Forwarding(lambda: self._forward(job, host, port))
        # Listen first: a local port that is taken costs no session.
        tunnel = Tunnel(forwarding.connect, local_port=local_port, on_close=forwarding.close)
        try:
            forwarding.open()
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    def run(self, job: str, host: str, command: Sequence[str], terminal: Terminal) -> int:
        marked = MarkedCommand(command, has_terminal=terminal.is_terminal)
        with self._session(
            job, host, "AWS-StartInteractiveCommand", {"command": [marked.line()]}
        ) as start:
            with contextlib.ExitStack() as ending:

                def begin(slave: int) -> int:
                    # In a separate session: Ctrl-C of the user's terminal comes as a key.
                    process = start(stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
                    ending.callback(_stop, process)
                    ended = _watch_end(process)
                    ending.callback(os.close, ended)
                    return ended

                code = terminal.run(begin, marked.feed)
        if code:
            return code
        if marked.code is None:
            words = marked.preamble.decode(errors="replace").strip()
            raise ServiceError(
                f"the session in {host} of {job} ended before the command did: "
                f"{words or 'no reason given'}"
            )
        return marked.code

    def _forward(self, job: str, host: str, port: int) -> "_Plugin":
        with self._session(
            job, host, "AWS-StartPortForwardingSession", {"portNumber": [str(port)]}
        ) as start:
            return _Plugin(start)

    @contextlib.contextmanager
    def _session(
        self, job: str, host: str, document: str, parameters: Mapping[str, list[str]]
    ) -> Any:
        if not self._path:
            self.check()
        request = {
            "Target": f"sagemaker-training-job:{job}_{host}",
            "DocumentName": document,
            "Parameters": dict(parameters),
            # Shown in the account's session history.
            "Reason": "raysm",
        }
        answer = self._start_session(request)
        response = {name: answer[name] for name in ("SessionId", "TokenValue", "StreamUrl")}
        endpoint = self._service.client("ssm").meta.endpoint_url
        arguments = [
            self._path,
            TOKEN_VARIABLE,
            self._service.region,
            "StartSession",
            self._service.connection.profile,
        ]
        variables = {**os.environ, TOKEN_VARIABLE: json.dumps(response)}  # noqa: TID251

        def start(**options: Any) -> "subprocess.Popen[Any]":
            return subprocess.Popen(
                [*arguments, json.dumps(request), endpoint], env=variables, **options
            )

        try:
            yield start
        except BaseException:
            with contextlib.suppress(ServiceError):
                self._service.call("ssm", "terminate_session", SessionId=answer["SessionId"])
            raise

    def _start_session(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        deadline_s = time.monotonic() + self._agent_s
        while True:
            try:
                answer: Mapping[str, Any] = self._service.call("ssm", "start_session", **request)
                return answer
            except ServiceError as error:
                if error.code != "TargetNotConnected":
                    raise
                if time.monotonic() > deadline_s:
                    raise ServiceError(f"{error}; {NOT_CONNECTED}", code=error.code) from error
            time.sleep(AGENT_PAUSE_S)


class _Forwarding:
    """The plugin of a tunnel, which is started again when its session has ended.

    Sessions end after an hour, 20 idle minutes, or a sleep of the laptop.
    """

    def __init__(self, start: Callable[[], "_Plugin"]) -> None:
        self._start = start
        self._plugin: _Plugin | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def open(self) -> "_Plugin":
        with self._lock:
            if self._is_closed:
                raise ConnectionError("the tunnel is closed")
            if self._plugin is None or not self._plugin.is_running:
                if self._plugin is not None:
                    self._plugin.close()
                self._plugin = self._start()
            return self._plugin

    def connect(self) -> socket.socket:
        return self.open().connect()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._plugin is not None:
                self._plugin.close()


class _Plugin:
    def __init__(self, start: Callable[..., "subprocess.Popen[str]"]) -> None:
        # In a separate process group: Ctrl-C ends raysm, which ends the plugin.
        self._process = start(
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reading: threading.Thread | None = None
        try:
            self._port = self._await_port()
        except BaseException:
            self.close()
            raise
        # Unread output would fill the pipe.
        self._reading = threading.Thread(
            target=self._output.read, name="plugin output", daemon=True
        )
        self._reading.start()

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _await_port(self) -> int:
        timer = threading.Timer(OPEN_S, self._process.kill)
        timer.start()
        lines: list[str] = []
        try:
            for line in self._output:
                lines.append(line.strip())
                opened = OPENED.search(line)
                if opened:
                    return int(opened[1])
        finally:
            timer.cancel()
        words = " ".join(line for line in lines if line)
        raise ServiceError(
            f"{NAME} opened no port: {words or f'it printed nothing for {OPEN_S:g} s'}"
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def connect(self) -> socket.socket:
        # The plugin may have ended just now, and its port be another user's.
        return connect_to_own(LOOPBACK, self._port, CONNECT_S)

    def close(self) -> None:
        _stop(self._process)
        if self._reading is not None:
            self._reading.join()
        self._output.close()


def _stop(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _watch_end(process: "subprocess.Popen[Any]") -> int:
    reader, writer = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(writer)

    threading.Thread(target=wait, daemon=True).start()
    return reader

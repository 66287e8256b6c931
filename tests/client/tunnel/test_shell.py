"""A command before the user's terminal: what it shows, what reaches it, how it ends; without a job."""

import contextlib
import os
import termios
import threading
from types import SimpleNamespace

import pytest

from raysm.client.description import SecondaryStatus
from raysm.client.tunnel.shell import Terminal, enter
from raysm.contract.job_api import TRAINING
from raysm.errors import InvalidRequest, ServiceError
from tests.support.ssm import Entered, Served

WAIT_S = 60


class Systems:
    """A service whose instance is this machine, and which notes whom it let in."""

    def __init__(self, served):
        self.served, self.targets, self.session = served, [], None

    def call(self, service, operation, **request):
        return {"start_session": self.start, "terminate_session": self.terminate}[operation](request)

    def start(self, request):
        self.targets.append(request["Target"])
        parameters = {name: values[0] for name, values in request["Parameters"].items()}
        way = self.served.begin(request["DocumentName"], **parameters)
        self.session = way.session
        return {"SessionId": way.session, "StreamUrl": way.url, "TokenValue": way.token}

    def terminate(self, request):
        self.served.gateway.terminate(request["SessionId"])
        return request


class Training:
    """A job of two instances that trains, and lets in."""

    name, api = "job-1", TRAINING

    def __init__(self, served):
        self.service = Systems(served)

    def describe(self):
        return SimpleNamespace(
            name=self.name,
            status="InProgress",
            secondary=SecondaryStatus.TRAINING,
            instances=(("ml.m5.large", 2),),
            answer={"RemoteDebugConfig": {"EnableRemoteDebug": True}},
        )


@pytest.fixture
def job():
    with Served(Entered()) as served:
        yield Training(served)


@contextlib.contextmanager
def piped():
    """A user without a terminal; yields it, and what reads all that it was shown."""
    stdin, typing = os.pipe()
    showing, stdout = os.pipe()
    try:
        yield Terminal(stdin, stdout), lambda: os.read(showing, 1 << 16)
    finally:
        for descriptor in (stdin, typing, showing, stdout):
            os.close(descriptor)


class Desk:
    """A user before a terminal, who types what ``answers`` says when a text is on the screen; a context manager."""

    def __init__(self, **answers):
        self.master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, (30, 100))
        self.answers, self.screen = answers, b""
        self.terminal = Terminal(self.slave, self.slave)
        self._thread = threading.Thread(target=self._sit, daemon=True)

    def _sit(self):
        with contextlib.suppress(OSError):
            while part := os.read(self.master, 4096):
                self.screen += part
                for text in [text for text in self.answers if text.encode() in self.screen]:
                    self.answers.pop(text)(self)

    def type(self, keys):
        os.write(self.master, keys)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        os.close(self.slave)
        self._thread.join(WAIT_S)
        os.close(self.master)


def test_its_output_is_shown_and_its_exit_code_returned(job):
    with piped() as (terminal, shown):
        assert enter(job, ["sh", "-c", "echo out; echo err >&2; exit 7"], terminal=terminal) == 7
        assert shown() == b"out\nerr\n"
    assert job.service.targets == ["sagemaker-training-job:job-1_algo-1"]


def test_the_instance_is_the_one_that_is_named(job):
    with piped() as (terminal, _):
        assert enter(job, ["true"], on="algo-2", terminal=terminal) == 0
        with pytest.raises(InvalidRequest, match="there is no instance 'algo-3'"):
            enter(job, ["true"], on="algo-3", terminal=terminal)
    assert job.service.targets == ["sagemaker-training-job:job-1_algo-2"]


def test_without_a_terminal_it_reads_nothing(job):
    with piped() as (terminal, _):
        assert enter(job, ["cat"], terminal=terminal) == 0


def test_keys_and_the_size_of_the_terminal_reach_it(job):
    command = "until stty size | grep -x '30 100'; do sleep 0.01; done; echo ready; read line; test $line = abc"
    with Desk(ready=lambda desk: desk.type(b"abc\r")) as desk:
        assert enter(job, ["sh", "-c", command], terminal=desk.terminal) == 0


def test_ctrl_c_is_typed_and_not_heard_here(job):
    with Desk(ready=lambda desk: desk.type(b"\x03")) as desk:
        # Nothing controls this terminal, so that the byte itself arrives.
        command = 'stty -isig -icanon; echo ready; test "$(head -c 1 | od -An -tx1)" = " 03"'
        assert enter(job, ["sh", "-c", command], terminal=desk.terminal) == 0


def test_the_terminal_is_afterwards_as_it_was(job):
    with Desk() as desk:
        before = termios.tcgetattr(desk.slave)
        with desk.terminal.raw():
            assert termios.tcgetattr(desk.slave) != before
        assert termios.tcgetattr(desk.slave) == before
        enter(job, ["true"], terminal=desk.terminal)
        assert termios.tcgetattr(desk.slave) == before


def test_a_session_that_ends_before_its_command_is_an_error(job):
    def end(desk):
        job.service.terminate({"SessionId": job.service.session})

    with Desk(ready=end) as desk, pytest.raises(ServiceError, match="the session ended before the command did"):
        enter(job, ["sh", "-c", "echo ready; sleep 600"], terminal=desk.terminal)


def test_it_is_entered_from_a_thread_that_hears_no_signals(job):
    codes = []
    with piped() as (terminal, _):
        thread = threading.Thread(target=lambda: codes.append(enter(job, ["true"], terminal=terminal)))
        thread.start()
        thread.join(WAIT_S)
    assert codes == [0]


def test_a_terminal_writes_all_and_knows_what_it_is():
    with piped() as (terminal, shown):
        assert not terminal.is_one
        terminal.write(b"x" * 5000)
        assert len(shown()) == 5000
        with terminal.raw():
            pass
    with Desk() as desk:
        assert desk.terminal.is_one
        assert desk.terminal.size() == (100, 30)

"""Output of calls in other processes."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from raysm.contract.events import Metric, line
from raysm.contract.session import CALL, CallRequest
from raysm.workloads.session.calls import Call
from raysm.workloads.session.relay import Printing, SocketLine, Standing


class Heard:
    """A process that stands ready, and what arrives at the other end of its connection.

    Attributes: folder, standing, connection (the other end).
    """

    def __init__(self, folder, private):
        self.folder = folder
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(private / "s"))
            listener.listen()
            self.line = SocketLine(str(private / "s"))
            self.standing = Standing(str(folder), self.line.send)
            self.connection, _ = listener.accept()
        self.connection.settimeout(60)
        self.file = self.connection.makefile()

    def messages(self, count):
        return [json.loads(self.file.readline()) for _ in range(count)]

    def close(self):
        self.file.close()
        self.connection.close()
        self.line._connection.close()


@pytest.fixture
def heard(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="rr") as private:
        process = Heard(tmp_path, Path(private))
        yield process
        process.close()
    # As every process that does calls, this one ignores what comes late.
    signal.signal(signal.SIGINT, before)


def test_what_a_call_prints_is_heard_line_by_line_and_counted(heard):
    before = sys.stdout, os.getcwd()
    with heard.standing.call("c") as printed:
        print("one", end="")
        print(" line")
        print("wrong", file=sys.stderr)
        print("no newline", end="")
        assert os.getcwd() == os.path.realpath(heard.folder)
        assert not sys.stdout.isatty()
    assert (sys.stdout, os.getcwd()) == before
    assert heard.messages(printed.messages) == [
        {"call": "c", "stream": "stdout", "text": "one line\n"},
        {"call": "c", "stream": "stderr", "text": "wrong\n"},
        {"call": "c", "stream": "stdout", "text": "no newline"},
    ]


def test_calls_of_one_process_are_told_apart(heard):
    for id in ("a", "b"):
        with heard.standing.call(id):
            print(id)
    assert [message["call"] for message in heard.messages(2)] == ["a", "b"]


def test_a_call_that_prints_nothing_sends_nothing(heard):
    with heard.standing.call("silent") as printed:
        pass
    assert printed.messages == 0


def test_a_metric_is_told_as_the_event_that_it_is(heard):
    metric = line(Metric(name="loss", value=0.5))
    with heard.standing.call("c") as printed:
        print(f"{metric}\nepoch 1")
    first, *rest = heard.messages(printed.messages)
    assert first == {"call": "c", "event": metric}
    assert "".join(piece["text"] for piece in rest) == "epoch 1\n"


def test_a_signal_interrupts_what_runs_in_there_and_nothing_behind_it(heard):
    def interrupted():
        with heard.standing.call("c"):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    # It would end this program.
    os.kill(os.getpid(), signal.SIGINT)
    # And the next call is interruptible again, whatever the one before has made of it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_behind_half_a_message_the_next_one_begins_a_line_of_its_own(heard):
    class Struck:
        """Sends the beginning, and is interrupted."""

        def sendall(self, content):
            connection.send(content[:9])
            raise KeyboardInterrupt

    connection, heard.line._connection = heard.line._connection, Struck()
    with pytest.raises(KeyboardInterrupt), heard.standing.call("a"):
        print("never heard")
    heard.line._connection = connection
    with heard.standing.call("b"):
        print("heard")
    assert heard.file.readline() == '{"call": \n'
    assert heard.messages(1) == [{"call": "b", "stream": "stdout", "text": "heard\n"}]


def test_a_session_that_is_gone_costs_a_call_its_output_and_nothing_else(heard):
    heard.connection.shutdown(socket.SHUT_RDWR)
    with heard.standing.call("c"):
        print("x" * 100_000)
        print("y" * 100_000)


def listening(script, **options):
    """Run the coroutine function ``script(printing, send)``; ``send`` sends bytes to the socket."""

    async def go():
        # Short: a socket's path has at most 107 bytes.
        private = Path(tempfile.mkdtemp(prefix="rp"))
        printing = Printing(private / "s", **options)
        await printing.start()
        _, writer = await asyncio.open_unix_connection(printing.socket)

        def send(*messages):
            for message in messages:
                writer.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

        try:
            return await asyncio.wait_for(script(printing, send), 60)
        finally:
            writer.close()
            printing.close()
            shutil.rmtree(private)

    return asyncio.run(go())


def call_of(id):
    return Call(id, CallRequest(kind=CALL, name="f"), b"", lambda: None)


def said(call):
    return [(piece.stream, piece.text) for piece in call.output.since(0)]


def test_each_call_has_what_it_printed_before_its_end():
    async def script(printing, send):
        first, second = call_of("a"), call_of("b")
        with printing.of(first), printing.of(second):
            send(
                {"call": "a", "stream": "stdout", "text": "one\n"},
                {"call": "b", "stream": "stderr", "text": "two\n"},
                {"call": "a", "stream": "stderr", "text": "three\n"},
            )
            await printing.drain(first, 2)
            await printing.drain(second, 1)
        return said(first), said(second)

    assert listening(script) == ([("stdout", "one\n"), ("stderr", "three\n")], [("stderr", "two\n")])


def test_half_a_message_and_what_a_call_prints_behind_its_end_disturb_nobody():
    async def script(printing, send):
        call = call_of("a")
        with printing.of(call):
            send(b'{"call": \n', {"call": "gone", "stream": "stdout", "text": "late"})
            send({"call": "a", "stream": "stdout", "text": "x" * 100_000})
            await printing.drain(call, 1)
        return said(call)

    assert listening(script) == [("stdout", "x" * 100_000)]


def test_a_metric_is_the_jobs_and_no_output(capsys):
    metric = line(Metric(name="loss", value=0.5))

    async def script(printing, send):
        call = call_of("a")
        with printing.of(call):
            send({"call": "a", "event": metric})
            await printing.drain(call, 1)
        return said(call)

    assert listening(script) == []
    assert capsys.readouterr().out == metric + "\n"


def test_output_that_never_comes_is_waited_for_no_longer_than_its_while():
    async def script(printing, send):
        call = call_of("a")
        with printing.of(call):
            await printing.drain(call, 1)

    listening(script, drain_s=0.5)

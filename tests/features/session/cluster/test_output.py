"""The output of calls: what is kept, the streams of the process, and output of calls in other processes."""

import asyncio
import io
import json
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.exceptions import UnserializableException

from raysm.core.protocol.events import Metric, line
from raysm.features.session.cluster.outcomes import capture_outcome
from raysm.features.session.cluster.output import (
    Output,
    OutputReceiver,
    OutputSocket,
    RoutedStream,
    enter_call,
    split_events,
)

METRIC = line(Metric(name="loss", value=0.5))


def text_of(output):
    return [(piece.stream, piece.text) for piece in output.read_from(0)]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=5))),
    st.integers(0, 60),
)
def test_what_follows_a_position_is_the_rest_of_all_that_was_printed(written, position):
    output = Output()
    for stream, text in written:
        output.write(stream, text)
    whole = "".join(text for _, text in written)
    assert "".join(piece.text for piece in output.read_from(position)) == whole[position:]
    assert output.end == len(whole)


def test_the_streams_stay_apart_and_the_end_of_much_output_is_kept():
    output, woken = Output(), []
    for stream, text in (("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d")):
        output.write(stream, text)
    assert text_of(output) == [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]
    output = Output(lambda: woken.append(1), most=100)
    output.write("stdout", "")
    assert woken == []
    for number in range(1000):
        output.write("stdout" if number % 2 else "stderr", f"{number:03}")
    kept = output.read_from(0)
    assert sum(len(piece.text) for piece in kept) <= 103
    assert kept[0].start == 3000 - sum(len(piece.text) for piece in kept)
    assert (kept[-1].text, len(woken)) == ("999", 1000)


def test_each_text_goes_where_the_route_says_and_events_of_the_job_go_to_its_log():
    log, output, route = io.StringIO(), Output(), []
    stream = RoutedStream("stderr", log, lambda: route[0] if route else None)
    stream.write("to the log\n")
    route.append(output)
    stream.write(f"before\n{METRIC}\nafter\n")
    assert text_of(output) == [("stderr", "before\nafter\n")]
    assert log.getvalue() == f"to the log\n{METRIC}\n"
    assert split_events('{"raysm": 1, nonsense\n') == ('{"raysm": 1, nonsense\n', [])


def written_to(stream):
    """Write as programs do that expect a real stream."""
    stream.write("text, ")
    stream.buffer.write(b"bytes, ")
    stream.buffer.write(memoryview("\u00e9".encode())[:1])
    stream.buffer.write("\u00e9".encode()[1:] + b" \xff\n")
    stream.buffer.flush()
    stream.reconfigure(encoding="utf-8", line_buffering=True)
    print("end", file=stream, flush=True)
    return "text, bytes, \u00e9 \ufffd\nend\n"


def test_bytes_are_text_among_the_text(tmp_path):
    output = Output()
    with (tmp_path / "log").open("w") as log:
        stream = RoutedStream("stdout", log, lambda: output)
        expected = written_to(stream)
        assert stream.fileno() == stream.buffer.fileno() == log.fileno()
    assert text_of(output) == [("stdout", expected)]
    assert (stream.encoding, stream.isatty(), stream.writable(), stream.name) == (
        "utf-8",
        False,
        True,
        "<stdout>",
    )


class Heard:
    """A process of calls, and the other end of its connection."""

    def __init__(self, folder, private):
        self.folder = folder
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(private / "s"))
            listener.listen()
            self.line = OutputSocket(str(private / "s"))
            self.connection, _ = listener.accept()
        self.connection.settimeout(60)
        self.file = self.connection.makefile()

    def call(self, id):
        return enter_call(str(self.folder), id, self.line.send)

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
    signal.signal(signal.SIGINT, before)


def test_what_a_call_prints_is_sent_by_lines_and_counted(heard):
    before = sys.stdout, os.getcwd()
    with heard.call("silent") as silent:
        pass
    with heard.call("c") as sender:
        print("one", end="")
        print(" line")
        print("wrong", file=sys.stderr)
        sender.arguments = lambda: {"lr": 0.1}
        print(METRIC)
        print("no newline", end="")
        assert os.getcwd() == os.path.realpath(heard.folder)
    assert (sys.stdout, os.getcwd()) == before
    assert (silent.messages, sender.messages) == (0, 4)
    assert heard.messages(4) == [
        {"call": "c", "stream": "stdout", "text": "one line\n"},
        {"call": "c", "stream": "stderr", "text": "wrong\n"},
        {"call": "c", "event": METRIC, "arguments": '{"lr": 0.1}'},
        {"call": "c", "stream": "stdout", "text": "no newline"},
    ]


def test_the_bytes_that_a_call_writes_are_sent_as_its_text(heard):
    with heard.call("c") as sender:
        expected = written_to(sys.stdout)
    assert "".join(message["text"] for message in heard.messages(sender.messages)) == expected


def test_a_signal_interrupts_a_call_and_nothing_after_it(heard):
    def interrupted():
        with heard.call("c"):
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


def test_a_session_that_is_gone_costs_a_call_only_its_output(heard):
    heard.connection.shutdown(socket.SHUT_RDWR)
    with heard.call("c"):
        print("x" * 100_000)
        print("y" * 100_000)


def listening(script, **options):
    """Run the coroutine function ``script(receiver, send)``; ``send`` sends messages to the socket."""

    async def go():
        # Short: a socket's path has at most 107 bytes.
        private = Path(tempfile.mkdtemp(prefix="rp"))
        receiver = OutputReceiver(private / "s", **options)
        await receiver.start()
        _, writer = await asyncio.open_unix_connection(receiver.socket)

        def send(*messages):
            for message in messages:
                writer.write(
                    message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
                )

        try:
            return await asyncio.wait_for(script(receiver, send), 60)
        finally:
            writer.close()
            receiver.close()
            shutil.rmtree(private)

    return asyncio.run(go())


def test_each_call_has_its_output_before_its_end_and_a_metric_is_the_jobs(capsys):
    async def script(receiver, send):
        first, second = Output(), Output()
        with receiver.collect("a", first), receiver.collect("b", second):
            send(
                {"call": "a", "stream": "stdout", "text": "one\n"},
                {"call": "b", "stream": "stderr", "text": "two\n"},
                {"call": "a", "event": METRIC},
                # Half a message, and a thread that prints after the end of its call.
                b'{"call": \n',
                {"call": "gone", "stream": "stdout", "text": "late"},
                {"call": "a", "stream": "stderr", "text": "x" * 100_000},
            )
            await receiver.drain("a", 3)
            await receiver.drain("b", 1)
        return text_of(first), text_of(second)

    assert listening(script) == (
        [("stdout", "one\n"), ("stderr", "x" * 100_000)],
        [("stderr", "two\n")],
    )
    assert capsys.readouterr().out == METRIC + "\n"


def raising(error):
    def work():
        raise error

    return work


class Twofold(Exception):
    """One that cannot be made anew from what it keeps."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_an_exception_travels_itself_with_its_place():
    outcome = capture_outcome(raising(KeyError("lr")), name="f", host="algo-1", item=3)
    error = outcome.error
    assert (error.type, error.message, error.host, error.item) == ("KeyError", "'lr'", "algo-1", 3)
    assert "in work\n    raise error" in error.traceback
    assert isinstance(pickle.loads(outcome.pickled), KeyError)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        # What a task raised that cannot be unpickled here.
        (
            UnserializableException(
                "ray::f()\n  File 'a.py', line 1, in f\n    raise Unknown()\nstore.Unknown: no row: 7"
            ),
            "store.Unknown",
            "no row: 7",
        ),
        (Twofold(1, 2), "Twofold", "1 2"),
        # It would end the client.
        (SystemExit(3), "SystemExit", "3"),
    ],
    ids=["task", "pickle", "exit"],
)
def test_an_exception_that_cannot_travel_is_described(error, kind, message):
    outcome = capture_outcome(raising(error), name="f")
    assert (
        outcome.error.type.rpartition("tests.features.session.cluster.test_output.")[2],
        outcome.pickled,
    ) == (
        kind,
        b"",
    )
    assert message in outcome.error.message


def test_a_value_that_cannot_be_pickled_is_a_failure_that_says_so():
    outcome = capture_outcome(threading.Lock, name="train")
    assert outcome.error.type == "InvalidRequest"
    assert "train, a lock" in outcome.error.message

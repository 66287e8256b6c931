"""The workers' lines on the head."""

import os
import socket
import sys
import threading

import pytest

from raysm.contract.events import Metric, line, parse
from raysm.workloads.training.launch.output import ERROR, OUT, STOP, Relay


@pytest.fixture
def head():
    written = []
    relay = Relay("127.0.0.1", lambda stream, data: written.append((stream, data)))
    relay.written = written
    yield relay
    relay.close()


def text(relay, stream=OUT):
    return b"".join(data for found, data in relay.written if found == stream).decode()


def test_lines_are_whole_and_carry_their_rank(head):
    with head.wire.connect(3, OUT) as first, head.wire.connect(0, OUT) as second:
        first.sendall(b"epo")
        second.sendall(b"hello\n")
        first.sendall(b"ch 1\nepoch 2\nthe last has no newline")
    head.drain()
    assert sorted(text(head).splitlines()) == [
        "[rank 0] hello",
        "[rank 3] epoch 1",
        "[rank 3] epoch 2",
        "[rank 3] the last has no newline",
    ]


def test_events_stay_as_they_are_and_torchs_own_label_is_dropped(head):
    event = line(Metric(name="loss", value=1.0))
    with head.wire.connect(0, OUT) as out:
        out.sendall(event.encode() + b"\n[rank0]: Traceback\n")
    head.drain()
    first, second = text(head).splitlines()
    assert first == event
    assert parse(first) is not None
    assert second == "[rank 0] Traceback"


def test_the_last_of_stderr_is_kept_until_other_workers_begin(head):
    with head.wire.connect(1, ERROR) as errors:
        errors.sendall(b"x" * 30_000 + b"\nValueError: no such layer\n")
    head.drain()
    assert head.tail(1).endswith("x\nValueError: no such layer\n")
    assert len(head.tail(1)) <= 16_384
    assert "[rank 1] ValueError" in text(head, ERROR)
    head.forget()
    assert head.tail(1) == ""


def test_who_does_not_know_the_key_is_not_heard(head):
    with socket.create_connection((head.wire.address, head.wire.port)) as stranger:
        stranger.sendall(b"0123456789abcdef 0 1\nlies\n")
        assert stranger.recv(1) == b""
    head.drain()
    assert head.written == []


def test_a_process_sends_its_own_output_and_hears_of_a_stop(head, capfd):
    told = threading.Event()
    with head.wire.instead_of_output(2, told.set):
        print("from Python")
        os.write(1, b"from a library\n")
        print("a warning", file=sys.stderr)
        # The connections are taken in their order, these lines after both.
        until = threading.Event()
        for _ in range(500):
            if "from a library" in text(head):
                break
            until.wait(0.01)
        head.send(OUT, STOP)
        assert told.wait(90)
    head.drain()
    assert text(head) == "[rank 2] from Python\n[rank 2] from a library\n"
    assert text(head, ERROR) == "[rank 2] a warning\n"
    print("again here")
    assert capfd.readouterr().out == "again here\n"

"""What a call's own process does around the user's function."""

import json
import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from raysm.contract.events import Metric, line
from raysm.workloads.session.relay import Place, in_place


@pytest.fixture
def place(tmp_path):
    """A place, and the lines that arrive at its socket once the call is over."""
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="rr") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Path(folder) / "s"))
        listener.listen()
        lines = []

        def hear():
            connection, _ = listener.accept()
            with connection, connection.makefile() as file:
                lines.extend(json.loads(text) for text in file)

        thread = threading.Thread(target=hear)
        thread.start()

        def heard():
            thread.join(60)
            assert not thread.is_alive()
            return lines

        yield Place(call="c", socket=str(Path(folder) / "s"), folder=str(tmp_path)), heard


def test_the_server_hears_who_it_is_and_what_it_prints_line_by_line(place):
    where, heard = place
    before = sys.stdout, os.getcwd()
    with in_place(where):
        print("one", end="")
        print(" line")
        print("wrong", file=sys.stderr)
        print("no newline", end="")
        assert os.getcwd() == os.path.realpath(where.folder)
        assert not sys.stdout.isatty()
    assert (sys.stdout, os.getcwd()) == before
    assert heard() == [
        {"call": "c", "pid": os.getpid()},
        {"stream": "stdout", "text": "one line\n"},
        {"stream": "stderr", "text": "wrong\n"},
        {"stream": "stdout", "text": "no newline"},
    ]


def test_a_metric_is_told_as_the_event_that_it_is(place):
    where, heard = place
    metric = line(Metric(name="loss", value=0.5))
    with in_place(where):
        print(f"{metric}\nepoch 1")
    assert heard()[1] == {"event": metric}
    assert "".join(piece["text"] for piece in heard()[2:]) == "epoch 1\n"


def test_a_signal_interrupts_what_runs_in_there_and_nothing_behind_it(place):
    where, heard = place
    before = signal.getsignal(signal.SIGINT)

    def interrupted():
        with in_place(where):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert signal.getsignal(signal.SIGINT) is before
    assert len(heard()) == 1


def test_the_end_is_seen_although_a_child_of_the_call_holds_the_socket(place):
    where, heard = place
    read, write = os.pipe()
    with in_place(where):
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            os._exit(0)
    try:
        assert len(heard()) == 1
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_a_session_that_is_gone_costs_a_call_its_output_and_nothing_else(place):
    where, heard = place
    with in_place(where):
        os.unlink(where.socket)
        print("x" * 100_000)
    heard()

"""The workers' lines on the head, and which failure is the reason."""

import itertools
import os
import signal
import socket
import sys
import threading

import pytest

from raysm.core.protocol.events import Metric, line, parse
from raysm.errors import InvalidRequest, MetricDiverged
from raysm.features.training.cluster.launch.failure_attribution import (
    Failure,
    as_refusal,
    attribute_failure,
    blame_early_end,
    find_cause,
    is_consequence,
)
from raysm.features.training.cluster.launch.output import ERROR, MAX_UNNAMED, OUT, STOP, Relay
from tests.support.waiting import until


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
        until(lambda: "from a library" in text(head))
        head.send(OUT, STOP)
        assert told.wait(90)
    head.drain()
    assert text(head) == "[rank 2] from Python\n[rank 2] from a library\n"
    assert text(head, ERROR) == "[rank 2] a warning\n"
    print("again here")
    assert capfd.readouterr().out == "again here\n"


WITHIN_A_GROUP = """\
some warning
[rank1]: Traceback (most recent call last):
[rank1]:   File "main.py", line 6, in <module>
[rank1]:     layer("conv9")
[rank1]: ValueError: no such layer: conv9
[rank1]: known are conv1, conv2
[W1120 19:27:33.512 ProcessGroup.cpp:1] destroy_process_group() was not called
"""

CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
mypackage.errors.Broken
"""

SPAWNED = """\
Traceback (most recent call last):
  File "main.py", line 90, in <module>
    mp.spawn(main_worker)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "main.py", line 40, in main_worker
RuntimeError: CUDA out of memory
"""  # noqa: W291 - as torch prints it


@pytest.mark.parametrize(
    ("stderr", "kind", "text"),
    [
        (WITHIN_A_GROUP, "ValueError", "no such layer: conv9\nknown are conv1, conv2"),
        (CHAINED, "mypackage.errors.Broken", ""),
        (SPAWNED, "RuntimeError", "CUDA out of memory"),
        (
            "usage: main.py [-h]\nmain.py: error: unknown --epoch\n",
            "exit code 2",
            "main.py: error: unknown --epoch",
        ),
    ],
)
def test_the_last_exception_is_the_reason(stderr, kind, text):
    error = attribute_failure(1, "algo-2", 2, stderr)
    assert (error.rank, error.host, error.exit_code, error.error_type) == (1, "algo-2", 2, kind)
    assert error.text.startswith(text)
    assert error.remote_traceback.startswith("Traceback" if "Traceback" in stderr else "")


def test_a_killed_worker_is_explained_by_the_signal_not_by_an_old_traceback():
    error = attribute_failure(3, "algo-2", -signal.SIGKILL, CHAINED)
    assert error.error_type == "killed by SIGKILL; most likely out of memory"
    assert (error.exit_code, error.remote_traceback) == (137, "")
    assert attribute_failure(3, "algo-2", -signal.SIGSEGV, "").exit_code == 139


@pytest.mark.parametrize("kind", [InvalidRequest, MetricDiverged])
def test_raysms_own_refusal_stays_one(kind):
    text = f"Traceback (most recent call last):\n  File 'a.py'\nraysm.errors.{kind.__name__}: data=3 x tensor=2 is 6\n"
    found = as_refusal(attribute_failure(0, "algo-1", 1, text))
    assert type(found) is kind
    assert str(found) == "data=3 x tensor=2 is 6"
    assert as_refusal(attribute_failure(0, "algo-1", 1, CHAINED)) is None


def raised(kind, text):
    return f"Traceback (most recent call last):\n  File 'main.py', line 3, in <module>\n{kind}: {text}\n"


LOST = raised(
    "RuntimeError",
    "[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41229",
)
WRONG = raised("ValueError", "no such layer: conv9")


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (1, LOST, True),
        (
            1,
            raised(
                "torch.distributed.DistNetworkError",
                "failed to recv, got 0 bytes. Connection was closed.",
            ),
            True,
        ),
        (
            1,
            raised("RuntimeError", "Timed out waiting 1800000ms for recv operation to complete"),
            True,
        ),
        (
            -signal.SIGABRT,
            "[rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n",
            True,
        ),
        (-signal.SIGABRT, "double free or corruption\n", False),
        (-signal.SIGKILL, LOST, False),
        (1, WRONG, False),
    ],
)
def test_who_lost_a_peer_failed_for_want_of_it(status, stderr, expected):
    assert is_consequence(attribute_failure(1, "algo-2", status, stderr)) is expected


def failure(rank, status, stderr="", was_ended=False, at_s=0.0):
    return Failure(
        error=attribute_failure(rank, "algo-1", status, stderr), at_s=at_s, was_ended=was_ended
    )


CAUSES = {
    "killed": [
        failure(0, -signal.SIGKILL),
        failure(1, 1, LOST),
        failure(2, -signal.SIGTERM, was_ended=True),
    ],
    "killed, and another one raises for want of it": [
        failure(0, -signal.SIGKILL),
        failure(1, 1, WRONG),
    ],
    "raised": [failure(0, 1, WRONG), failure(1, 1, LOST), failure(2, 1, WRONG, was_ended=True)],
    "exited": [
        failure(0, 3),
        failure(1, -signal.SIGABRT, "collective operation timeout"),
        failure(2, 1, LOST),
    ],
    "the network": [failure(0, 1, LOST), failure(1, -signal.SIGKILL, was_ended=True)],
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named_in_whatever_order_the_ends_are_seen(name):
    for order in itertools.permutations(CAUSES[name]):
        seen = [
            Failure(error=item.error, at_s=float(at_s), was_ended=item.was_ended)
            for at_s, item in enumerate(order)
        ]
        assert [find_cause(listed).rank for listed in (seen, seen[::-1])] == [0, 0]


def test_a_worker_that_ended_with_0_before_the_others_is_named_as_the_reason():
    error = attribute_failure(0, "algo-1", 1, LOST)
    early = blame_early_end(error, [(1, "algo-2")])
    assert str(early).startswith("rank 1 on algo-2: ended with 0 before rank 0 on algo-1, which")
    assert "Connection closed by peer" in str(early)
    assert early.exit_code == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files by Linux's list")
def test_silent_connections_do_not_keep_workers_out_or_take_all_open_files(head):
    before = len(os.listdir("/proc/self/fd"))
    place = head.wire.address, head.wire.port
    silent = [socket.create_connection(place, timeout=60) for _ in range(2 * MAX_UNNAMED)]
    try:
        with head.wire.connect(0, OUT) as out:
            out.sendall(b"hello\n")
        head.drain()
        assert text(head) == "[rank 0] hello\n"
        # The oldest have been closed.
        assert silent[0].recv(1) == b""
        assert len(os.listdir("/proc/self/fd")) < before + len(silent) + MAX_UNNAMED + 10
    finally:
        for connection in silent:
            connection.close()

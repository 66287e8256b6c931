"""What runs in the processes of a session."""

import asyncio
import os
import pickle
import tempfile
import threading
import tracemalloc
from pathlib import Path

import cloudpickle
import pytest

from raysm.features.session.cluster import work
from raysm.features.session.cluster.blobs import Blob, Blobs
from raysm.features.session.cluster.work import CallServer, CallSocket
from raysm.features.session.protocol import Outcome

WAIT_S = 300.0
LARGE = os.urandom(3 << 20)


@pytest.fixture
def path():
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="rl") as private:
        yield str(Path(private) / "c")


def with_line(path, work, script):
    """Run the coroutine function ``script(line)`` with a line to a thread that does ``work``, until it lets go."""
    serving = CallServer(path)
    thread = threading.Thread(target=serving.serve, args=(work,))
    thread.start()

    async def go():
        line = await CallSocket.connect(path, Blobs(Path(path).parent))
        try:
            return await asyncio.wait_for(script(line), WAIT_S)
        finally:
            line.close()

    try:
        return asyncio.run(go())
    finally:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def echo(id, pickled, name, host):
    return [bytes(pickled), f" {id} {name} {host}".encode()], name == "bad", len(pickled)


def test_what_is_large_travels_whole(path):
    async def script(line):
        body = Blob(None)
        body.write([LARGE])
        return [await line.call("1", each, "f", "h") for each in (body, b"small", body)]

    large, small, again = with_line(path, echo, script)
    assert bytes(large[0].content()) == bytes(again[0].content()) == LARGE + b" 1 f h"
    assert small == (b"small 1 f h", False, 5)


def test_a_process_that_goes_is_noticed_by_whoever_waits(path):
    def die(*_):
        raise ConnectionError  # what ends a process's serving without a word

    async def script(line):
        with pytest.raises(ConnectionError, match="connection"):
            await line.call("1", b"", "f", "h")
        # Of calls behind it, too.
        with pytest.raises(ConnectionError):
            await line.call("2", b"", "f", "h")

    with_line(path, die, script)


pytestmark = pytest.mark.usefixtures("by_value")


def batch(function, items, *, first=0, retries=0, return_exceptions=False):
    pickled = pickle.dumps([cloudpickle.dumps(item) for item in items])
    encoded, failed = work.run_batch(
        cloudpickle.dumps((function, (), {})), pickled, first, retries, return_exceptions, False
    )
    assert not failed
    took_s, outcomes = pickle.loads(Outcome.decode(encoded).pickled)
    assert took_s >= 0
    return [Outcome.decode(outcome) for outcome in outcomes]


def values(outcomes):
    return [
        pickle.loads(outcome.pickled) if outcome.error is None else outcome.error.item
        for outcome in outcomes
    ]


def inverse(x):
    return 1 / x


@pytest.mark.parametrize(
    ("items", "return_exceptions", "expected"),
    [
        ([1, 2, 4], False, [1.0, 0.5, 0.25]),
        ([1, 0, 2], False, [1.0, 11]),
        ([1, 0, 2], True, [1.0, 11, 0.5]),
    ],
)
def test_a_batch_ends_at_a_failed_item_unless_exceptions_are_results(
    items, return_exceptions, expected
):
    assert values(batch(inverse, items, first=10, return_exceptions=return_exceptions)) == expected


def test_an_item_is_tried_again_as_often_as_was_asked(tmp_path):
    def third_time(path):
        tries = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(tries))
        if tries < 3:
            raise OSError("not yet")
        return tries

    assert values(batch(third_time, [tmp_path / "a"], retries=1)) == [0]
    assert values(batch(third_time, [tmp_path / "b"], retries=2)) == [3]


def test_of_a_command_that_prints_much_the_end_is_kept_and_no_more_is_ever_held():
    tracemalloc.start()
    try:
        encoded, _ = work.run_shell(f"head -c {64 * work.KEPT_OUTPUT} /dev/zero; echo end", "")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    output = pickle.loads(Outcome.decode(encoded).pickled)["output"]
    assert (len(output), output[-5:]) == (work.KEPT_OUTPUT, "\0end\n")
    assert peak_bytes < 16 * work.KEPT_OUTPUT

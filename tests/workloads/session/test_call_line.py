"""The two ends of the socket by which a call goes to its process."""

import asyncio
import os
import tempfile
import threading
from pathlib import Path

import pytest

from raysm.workloads.session.call_line import CallLine, Serving

WAIT_S = 60.0
LARGE = os.urandom(3 << 20)


@pytest.fixture
def path():
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="rl") as private:
        yield str(Path(private) / "c")


def with_line(path, work, script):
    """Run the coroutine function ``script(line)`` with a line to a thread that does ``work``, until it lets go."""
    serving = Serving(path)
    thread = threading.Thread(target=serving.serve, args=(work,))
    thread.start()

    async def go():
        line = await CallLine.to(path)
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
    return pickled + f" {id} {name} {host}".encode(), name == "bad", len(pickled)


def test_calls_go_one_after_the_other_with_what_they_are(path):
    async def script(line):
        return [await line.call("1", b"one", "good", "algo-1"), await line.call("2", b"", "bad", "é\n")]

    assert with_line(path, echo, script) == [
        (b"one 1 good algo-1", False, 3),
        (b" 2 bad \xc3\xa9\n", True, 0),
    ]


def test_what_is_large_travels_whole(path):
    async def script(line):
        return await line.call("1", LARGE, "f", "h")

    outcome, _, count = with_line(path, echo, script)
    assert (outcome, count) == (LARGE + b" 1 f h", len(LARGE))


def test_nobody_finds_the_socket_behind_its_session(path):
    async def script(line):
        await line.call("1", b"", "f", "h")
        return Path(path).exists()

    assert not with_line(path, echo, script)


def test_a_process_that_goes_is_noticed_by_whoever_waits(path):
    def die(*_):
        raise ConnectionError  # what ends a process's serving without a word

    async def script(line):
        with pytest.raises(ConnectionError, match="its connection with the session ended"):
            await line.call("1", b"", "f", "h")
        # Of calls behind it, too.
        with pytest.raises(ConnectionError):
            await line.call("2", b"", "f", "h")

    with_line(path, die, script)


def test_what_goes_wrong_around_a_call_is_not_kept_quiet(path):
    def lost(*_):
        raise FileNotFoundError("the folder of the calls")

    serving = Serving(path)

    async def go():
        serves = asyncio.create_task(asyncio.to_thread(serving.serve, lost))
        line = await CallLine.to(path)
        with pytest.raises(ConnectionError):
            await line.call("1", b"", "f", "h")
        line.close()
        with pytest.raises(FileNotFoundError, match="the folder of the calls"):
            await asyncio.wait_for(serves, WAIT_S)

    asyncio.run(go())

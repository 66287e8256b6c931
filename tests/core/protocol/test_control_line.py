"""The handshake of the control channel, line by line: a malformed or foreign peer is refused and learns nothing."""

import asyncio
import json

import pytest

from raysm.core.protocol.control_line import (
    MAX_GREETING,
    ProtocolError,
    TokenRefused,
    greet_head,
    greet_worker,
)

TOKEN = b"a secret of this test"
HELLO = {"raysm": 1, "nonce": "n"}


class Written:
    """The writing side of a connection that goes nowhere."""

    def __init__(self):
        self.lines = []

    def write(self, data):
        self.lines.append(json.loads(data))


def reader(*lines):
    stream = asyncio.StreamReader(limit=MAX_GREETING)
    for line in lines:
        stream.feed_data((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
    stream.feed_eof()
    return stream


async def to_head(*lines):
    written = Written()
    try:
        await greet_worker(reader(*lines), written, TOKEN)
    finally:
        assert not any("proof" in line for line in written.lines), (
            "a stranger was given a proof to try tokens on"
        )


async def to_worker(*lines):
    await greet_head(reader(*lines), Written(), TOKEN, "algo-2")


@pytest.mark.parametrize(
    "greeting",
    [{"host": "algo-2", "nonce": "n"}, {"host": 2, "nonce": "n", "proof": "p"}, [], b"\xff"],
)
def test_a_greeting_that_lacks_something_is_no_workers(greeting):
    with pytest.raises(ProtocolError) as caught:
        asyncio.run(to_head(greeting))
    assert caught.type is ProtocolError


@pytest.mark.parametrize(
    "hello", [{"raysm": 2, "nonce": "n"}, {"raysm": 1}, {"raysm": 1, "nonce": 3}, {}]
)
def test_a_head_of_another_protocol_is_none(hello):
    with pytest.raises(ProtocolError, match="no raysm head"):
        asyncio.run(to_worker(hello))


@pytest.mark.parametrize("proof", ["p", None, 7, ["p"], "\ud800"])
def test_a_head_that_cannot_prove_itself_is_refused(proof):
    with pytest.raises(TokenRefused, match="calls itself the head"):
        asyncio.run(to_worker(HELLO, {"proof": proof}))

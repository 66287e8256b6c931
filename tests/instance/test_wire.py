"""The handshake, line by line, and malformed peers: whoever greets wrongly is refused, and learns nothing."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysm import JobRequest, Similarity
from raysm.core.protocol import payload
from raysm.core.protocol.control_line import (
    MAX_GREETING,
    MAX_LINE,
    ProtocolError,
    TokenRefused,
    greet_head,
    greet_worker,
)
from raysm.core.protocol.paths import Paths
from raysm.core.request import Input
from raysm.instance import lifecycle as life
from raysm.instance import wire
from raysm.instance.outputs import PIECE, in_pieces, read_outputs
from tests.support.bootstraps import write_training
from tests.support.payloads import pack_payload


@pytest.mark.parametrize(
    "event",
    [life.Invited(6379), life.JobEnded("ValueError: no"), life.OutputsTaken(("a", "b"), ("c",))],
)
def test_a_worker_reads_what_the_head_writes(event):
    assert wire.decode(json.loads(json.dumps(wire.encode(event))), wire.TO_WORKER) == event


@pytest.mark.parametrize(
    "event",
    [
        life.RayLost("algo-2", "restart 1 of 3"),
        life.Lost("algo-2", "Ray on algo-2 ended"),
        wire.OutputsClaimed("algo-2", ("a", "b"), 7),
        wire.FileLeft("a/b.pt", 7, "0f"),
    ],
)
def test_the_head_reads_what_a_worker_writes_and_knows_whose_it_is(event):
    message = json.loads(json.dumps(wire.encode(event)))
    assert wire.decode(message | {"host": "algo-3"}, wire.TO_HEAD, "algo-2") == event


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "hello again"},
        {"kind": "Invited"},
        {"kind": "Invited", "port": "6379"},
        {"kind": "OutputsTaken", "keys": "a"},
        {"kind": "Lost", "reason": 7},
        {"kind": "FileLeft", "name": "a"},
    ],
)
def test_what_is_not_known_or_has_another_form_is_passed_over(message):
    assert wire.decode(message, wire.TO_WORKER) is None
    assert wire.decode(message, wire.TO_HEAD, "algo-2") is None


def test_a_reason_of_any_length_and_script_fits_one_line():
    assert len(json.dumps(wire.encode(life.JobEnded("\N{GRINNING FACE}" * 5000)))) < MAX_LINE - 100


def test_the_keys_that_are_asked_about_at_a_time_fit_one_line_and_so_does_the_answer(tmp_path):
    paths = Paths(tmp_path)
    paths.model.mkdir()
    for number in range(PIECE + 1):
        (paths.model / f"{number}").touch()
    pieces = list(in_pieces(read_outputs(paths)))
    assert [len(keys) for keys in pieces] == [PIECE, 1]
    half = PIECE // 2
    for message in (
        wire.encode(wire.OutputsClaimed("", tuple(pieces[0]), 2**62)),
        wire.encode(life.OutputsTaken(tuple(pieces[0][:half]), tuple(pieces[0][half:]))),
    ):
        assert len(json.dumps(message)) < MAX_LINE - 100


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


BARE = "from raysm.instance.supervisor import main; sys.exit(main())"


def bootstrapped(base, *arguments, damage=lambda paths: None):
    """Run the bootstrap of an instance; return what it left as the reason, and its stderr."""
    paths = write_training(base, "algo-1", ["algo-1"])
    request = JobRequest(
        name="a-job", workload=Similarity(top_k=3), inputs={"matrix": Input("s3://bucket/key")}
    )
    pack_payload(request, paths.payload)
    damage(paths)
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 2
    return Paths(base).failure.read_text(), ended.stderr


def test_a_malformed_file_is_one_clear_line_and_exit_two(tmp_path):
    for name in ("payload", "config"):
        reason, log = bootstrapped(
            tmp_path / name,
            "-m",
            "raysm.instance",
            damage=lambda paths, name=name: (
                paths.payload / "digests.json" if name == "payload" else paths.resource_config
            ).write_bytes(b"[]"),
        )
        assert reason
        assert "\n" not in reason
        assert "Traceback" not in reason
        assert "inside raysm" not in reason
        assert log == f"raysm: {reason}\n"


def test_an_image_without_ray_says_so(tmp_path):
    # Without site-packages, and with raysm alone: an image in which nothing is installed.
    paths = [str(Path(payload.__file__).parents[2])]
    reason, _ = bootstrapped(tmp_path, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{BARE}")
    assert reason.startswith("the package 'ray' is not installed in this image")

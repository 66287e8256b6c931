"""What head and workers tell each other."""

import json

import pytest

from raysm.bootstrap import wire
from raysm.bootstrap.lifecycle import Invited, JobEnded, Lost, OutputsTaken, RayLost
from raysm.bootstrap.outputs import PIECE, in_pieces, read_outputs
from raysm.bootstrap.wire import MAX_LINE
from raysm.contract.paths import Paths


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (wire.invite_to_ray(6379), Invited(6379)),
        (wire.tell_end(0, ""), JobEnded("")),
        (wire.tell_end(3, "ValueError: no"), JobEnded("ValueError: no")),
        (wire.tell_taken(["a", "b"], ["c"]), OutputsTaken(frozenset({"a", "b"}), frozenset({"c"}))),
    ],
)
def test_a_worker_reads_what_the_head_writes(message, event):
    assert wire.read_from_head(json.loads(json.dumps(message))) == event


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (wire.tell_ray_loss("restart 1 of 3"), RayLost("algo-2", "restart 1 of 3")),
        (wire.tell_failure("Ray on algo-2 ended"), Lost("algo-2", "Ray on algo-2 ended")),
        (wire.claim_outputs(["a", "b"], 7), wire.OutputsClaimed("algo-2", ("a", "b"), 7)),
        (wire.tell_file(wire.FileLeft("a/b.pt", 7, "0f")), wire.FileLeft("a/b.pt", 7, "0f")),
    ],
)
def test_the_head_reads_what_a_worker_writes_and_knows_whose_it_is(message, event):
    assert wire.read_from_worker("algo-2", json.loads(json.dumps(message))) == event


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"kind": "hello again"},
        {"kind": "ray"},
        {"kind": "ray", "port": "6379"},
        {"kind": "taken", "keys": "a"},
        {"kind": "outputs"},
        {"kind": "file", "name": "a"},
    ],
)
def test_what_is_not_known_or_has_another_form_is_passed_over(message):
    assert wire.read_from_head(message) is None
    assert wire.read_from_worker("algo-2", message) is None


@pytest.mark.parametrize("tell", [wire.tell_ray_loss, wire.tell_failure, lambda text: wire.tell_end(1, text)])
def test_a_reason_of_any_length_and_script_fits_one_line(tell):
    assert len(json.dumps(tell("\N{GRINNING FACE}" * 5000))) < MAX_LINE - 100


def test_the_keys_that_are_asked_about_at_a_time_fit_one_line_and_so_does_the_answer(tmp_path):
    paths = Paths(tmp_path)
    paths.model.mkdir()
    for number in range(PIECE + 1):
        (paths.model / f"{number}").touch()
    pieces = list(in_pieces(read_outputs(paths)))
    assert [len(keys) for keys in pieces] == [PIECE, 1]
    half = PIECE // 2
    for message in (
        wire.claim_outputs(pieces[0], 2**62),
        wire.tell_taken(pieces[0][:half], pieces[0][half:]),
    ):
        assert len(json.dumps(message)) < MAX_LINE - 100

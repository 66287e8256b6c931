"""What head and workers tell each other."""

import json

import pytest

from raysm.bootstrap import messages
from raysm.bootstrap.lifecycle import Invited, JobEnded, Lost, RayLost
from raysm.bootstrap.wire import MAX_LINE


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (messages.invite_to_ray(6379), Invited(6379)),
        (messages.tell_end(0, ""), JobEnded("")),
        (messages.tell_end(3, "ValueError: no"), JobEnded("ValueError: no")),
    ],
)
def test_a_worker_reads_what_the_head_writes(message, event):
    assert messages.read_from_head(json.loads(json.dumps(message))) == event


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (messages.tell_ray_loss("restart 1 of 3"), RayLost("algo-2", "restart 1 of 3")),
        (messages.tell_failure("Ray on algo-2 ended"), Lost("algo-2", "Ray on algo-2 ended")),
    ],
)
def test_the_head_reads_what_a_worker_writes_and_knows_whose_it_is(message, event):
    assert messages.read_from_worker("algo-2", json.loads(json.dumps(message))) == event


@pytest.mark.parametrize("message", [{}, {"kind": "hello again"}, {"kind": "ray"}, {"kind": "ray", "port": "6379"}])
def test_what_is_not_known_or_has_another_form_is_passed_over(message):
    assert messages.read_from_head(message) is None
    assert messages.read_from_worker("algo-2", message) is None


@pytest.mark.parametrize(
    "tell", [messages.tell_ray_loss, messages.tell_failure, lambda text: messages.tell_end(1, text)]
)
def test_a_reason_of_any_length_and_script_fits_one_line(tell):
    assert len(json.dumps(tell("\N{GRINNING FACE}" * 5000))) < MAX_LINE - 100

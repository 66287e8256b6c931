"""Batch inference as a request says it."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.batch import BatchInference
from raysm.request.options import decisive_json

pytestmark = pytest.mark.smoke


def batch(**fields):
    return BatchInference(**{"name": "module.Model", "python": "3.11", "batch_size": 8} | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, got True"),
        ({"cpus": 0}, "cpus must be a number above 0, got 0"),
        ({"read": "video"}, "read is one of 'images', 'text'"),
        ({"keep": "id"}, "keep must be a list, got 'id'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        batch(**fields)


@pytest.mark.parametrize(
    ("channel", "inputs", "message"),
    [
        (None, ["a", "b"], "has 2 inputs; say which one is read, channel='a'"),
        (None, [], "has 0 inputs; give one"),
        ("c", ["a", "b"], "has no input 'c'; it has a, b"),
    ],
)
def test_an_input_that_is_not_clear_is_asked_for(channel, inputs, message):
    with pytest.raises(InvalidRequest, match=message):
        batch(channel=channel).channel_of(inputs)


def test_what_one_process_takes_does_not_decide_the_predictions():
    assert decisive_json(batch(cpus=3, gpus=0.5)) == decisive_json(batch())
    assert decisive_json(batch(keep=("id",))) != decisive_json(batch())

"""Batch inference as a request says it."""

import pytest

from raysm.core.request.options import decisive_json
from raysm.errors import InvalidRequest
from raysm.features.batch.request import BatchInference

pytestmark = pytest.mark.smoke


def batch(**fields):
    return BatchInference(**{"name": "module.Model", "python": "3.11", "batch_size": 8} | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": True}, "batch_size.*got True"),
        ({"cpus": 0}, "cpus.*got 0"),
        ({"read": "video"}, "read .*'video'"),
        ({"keep": "id"}, r"keep=\['id'\]"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        batch(**fields)


@pytest.mark.parametrize(
    ("channel", "inputs", "message"),
    [
        (None, ["a", "b"], "2 inputs.*channel='a'"),
        (None, [], "0 inputs"),
        ("c", ["a", "b"], "'c'.*a, b"),
    ],
)
def test_an_input_that_is_not_clear_is_asked_for(channel, inputs, message):
    with pytest.raises(InvalidRequest, match=message):
        batch(channel=channel).channel_of(inputs)


def test_what_one_process_takes_does_not_decide_the_predictions():
    assert decisive_json(batch(cpus=3, gpus=0.5)) == decisive_json(batch())
    assert decisive_json(batch(keep=("id",))) != decisive_json(batch())

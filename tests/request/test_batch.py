"""Batch inference as a request says it."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.batch import READ, BatchInference
from raysm.request.codec import from_json, to_json
from raysm.request.workload import Workload
from raysm.workloads.batch.formats import FORMATS

pytestmark = pytest.mark.smoke


def batch(**fields):
    return BatchInference(**{"name": "module.Model", "python": "3.11", "batch_size": 8} | fields)


def test_it_travels_as_json():
    asked = batch(keep=["id"], read="csv", gpus=0.5, channel="rows")
    assert from_json(Workload, to_json(asked), "workload") == asked


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, got True"),
        ({"piece_rows": 2.5}, "piece_rows must be a whole number"),
        ({"cpus": 0}, "cpus must be a number above 0, got 0"),
        ({"gpus": -1}, "gpus must be a number at least 0, got -1"),
        ({"read": "video"}, "read is one of 'images', 'text'"),
        ({"keep": "id"}, "keep is a list of columns, got 'id'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        batch(**fields)


def test_how_records_are_cut_does_not_depend_on_the_cluster():
    assert batch().rows_of_a_piece == 16 * 8
    assert batch(piece_rows=100).rows_of_a_piece == 100


def test_whatever_can_be_read_has_a_format():
    assert READ == tuple(FORMATS)

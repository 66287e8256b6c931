"""The way to a job's dashboard."""

import pytest

from raysm.client.dashboard_place import Place
from raysm.client.submit import submit
from raysm.client.ways import way_to
from raysm.errors import InvalidRequest
from raysm.request import Script

PLACE = Place(host="algo-1", port=8265, address="127.0.0.1:8265")


def test_an_instance_of_this_machine_is_reached_where_it_says(local, script):
    with way_to(submit(Script(str(script)), on=local.service), PLACE) as way:
        assert way.address == "127.0.0.1:8265"


def test_on_aws_it_says_how_it_is_reached(job):
    with pytest.raises(InvalidRequest, match=f"raysm debug {job.name}"), way_to(job, PLACE):
        pass

"""The way to a job's dashboard."""

import contextlib

import pytest

from raysm.client.dashboard_place import Place
from raysm.client.submit import submit
from raysm.client.ways import Reached, way_to
from raysm.errors import InvalidRequest
from raysm.request import Script

PLACE = Place(host="algo-1", port=8265, address="127.0.0.1:8265")


def test_a_processing_job_of_this_machine_is_reached_where_it_says(local, script):
    job = submit(Script(str(script)), on=local.service, kind="processing")
    with way_to(job, PLACE) as way:
        assert way.address == "127.0.0.1:8265"


class Tunnelled:
    """A job whose tunnels lead nowhere, and are remembered."""

    def __init__(self, job):
        self.api, self.service, self.tunnels = job.api, job.service, []

    def tunnel(self, port, on=None):
        self.tunnels.append((port, on))
        return contextlib.nullcontext(Reached("127.0.0.1:9"))


def test_a_training_job_is_reached_through_a_tunnel_to_that_instance(job):
    tunnelled = Tunnelled(job)
    with way_to(tunnelled, PLACE) as way:
        assert way.address == "127.0.0.1:9"
    assert tunnelled.tunnels == [(8265, "algo-1")]


def test_a_job_that_does_not_run_is_refused_as_the_tunnel_says(job):
    with pytest.raises(InvalidRequest, match="it can be entered while it is Training"), way_to(job, PLACE):
        pass

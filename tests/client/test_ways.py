"""The way to a job's dashboard."""

import contextlib

import pytest

from raysm.client.dashboard_place import Place
from raysm.client.submit import submit
from raysm.client.ways import Reached, way_to
from raysm.contract.events import DASHBOARD_NOT_YET
from raysm.errors import InvalidRequest, NotDone
from raysm.request import Script
from tests.support.dashboard_head import Answer, Head, serving_head

PLACE = Place(host="algo-1", port=8265, address="127.0.0.1:8265")


def test_a_processing_job_of_this_machine_is_reached_where_it_says(local, script):
    job = submit(Script(str(script)), on=local.service, kind="processing")
    with serving_head() as head:
        place = Place(host="algo-1", port=head.port, address=head.address)
        with way_to(job, place) as way:
            assert way.address == head.address


class Tunnelled:
    """A job whose tunnels lead to an address of this machine, and are remembered."""

    def __init__(self, job, address, looks=0):
        self.api, self.service, self.name, self.tunnels = job.api, job.service, job.name, []
        self._address, self._looks = address, looks

    def tunnel(self, port, on=None):
        self.tunnels.append((port, on))
        return contextlib.nullcontext(Reached(self._address))

    def done(self):
        """It ends before the last of so many looks."""
        self._looks -= 1
        return self._looks == 0


def test_a_training_job_is_reached_through_a_tunnel_to_that_instance(job):
    with serving_head() as head:
        tunnelled = Tunnelled(job, head.address)
        with way_to(tunnelled, PLACE) as way:
            assert way.address == head.address
    assert tunnelled.tunnels == [(8265, "algo-1")]


class StartingHead(Head):
    """A head whose dashboard comes up while it is asked."""

    def answer_to(self, asked):
        return Answer(status=DASHBOARD_NOT_YET if len(self.requests) < 3 else 401)


def test_a_dashboard_that_is_being_started_is_waited_for(job):
    with contextlib.closing(StartingHead()) as head, way_to(Tunnelled(job, head.address), PLACE):
        assert len(head.requests) == 3


def test_one_that_does_not_come_up_in_time_is_said(job):
    with pytest.raises(NotDone, match=rf"the dashboard of {job.name} has not come up within 0 s; the job goes on"):
        way_to(Tunnelled(job, "127.0.0.1:9"), PLACE, limit_s=0).__enter__()


def test_the_dashboard_of_a_job_that_ends_meanwhile_is_waited_for_no_longer(job):
    with way_to(Tunnelled(job, "127.0.0.1:9", looks=2), PLACE) as way:
        assert way.address == "127.0.0.1:9"


def test_a_job_that_does_not_run_is_refused_as_the_tunnel_says(job):
    with pytest.raises(InvalidRequest, match="it can be entered while it is Training"), way_to(job, PLACE):
        pass

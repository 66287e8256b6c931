"""Where a job says that its dashboard is."""

import pytest

from raysm.client.tunnel.dashboard import Place, last_place, place_told
from raysm.contract.events import Metric, State


def told(address, host="algo-1"):
    return State(name="dashboard", host=host, address=address)


def test_it_is_the_instance_and_the_port_that_the_job_tells():
    assert place_told(told("http://10.0.0.7:8265")) == Place(host="algo-1", port=8265, address="10.0.0.7:8265")


@pytest.mark.parametrize(
    "event",
    [
        State(name="formed", host="algo-1"),
        State(name="dashboard"),
        told("http://10.0.0.7"),
        Metric(name="a", value=1.0),
    ],
)
def test_another_event_tells_none(event):
    assert place_told(event) is None


def test_a_follow_up_job_tells_another_one():
    events = [told("http://10.0.0.7:1"), Metric(name="a", value=1.0), told("http://10.0.0.8:2", "algo-2")]
    assert last_place(events) == Place(host="algo-2", port=2, address="10.0.0.8:2")
    assert last_place([]) is None

"""The ports of a cluster: in range, distinct, and fixed where others have to find them."""

from dataclasses import fields

import pytest

from raysm.errors import InvalidRequest
from raysm.request.ports import Ports


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"metrics_export": 65536}, "metrics_export must be 0 to 65535, got 65536"),
        ({"gcs": -1}, "gcs must be 0 to 65535, got -1"),
        ({"dashboard": 6379}, "dashboard and gcs are both 6379"),
        ({"control": 0}, "control must be a fixed port"),
        ({"worker_min": 20000}, "worker_max=19999 lies below worker_min=20000"),
    ],
)
def test_ports_that_cannot_be_are_refused(chosen, message):
    with pytest.raises(InvalidRequest, match=message):
        Ports(**chosen)


def test_several_ports_may_be_left_to_the_system():
    free = Ports(node_manager=0, object_manager=0, metrics_export=0)
    assert (free.node_manager, free.object_manager) == (0, 0)


def test_no_fixed_port_lies_in_the_range_of_the_workers():
    ports = Ports()
    fixed = [getattr(ports, item.name) for item in fields(Ports) if not item.name.startswith("worker")]
    assert not [port for port in fixed if ports.worker_min <= port <= ports.worker_max]

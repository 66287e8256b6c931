"""A real Ray is asked for the requests that no instance can meet; bootstrap/test_gcs_state has what follows."""

import asyncio

import pytest

from raysm.bootstrap import gcs_state
from raysm.bootstrap.gcs_state import UnmetRequests, unmet_socket, watch_unmet
from raysm.errors import InvalidRequest


def test_a_task_that_asks_for_more_than_an_instance_has_is_found_and_named(ray_here, one_ray, monkeypatch):
    # A job looks every five seconds.
    monkeypatch.setattr(gcs_state, "FIRST_S", 0.2)
    monkeypatch.setattr(gcs_state, "LOOK_S", 0.2)
    task = ray_here.remote(num_cpus=64)(lambda: None).remote()
    try:
        port = int(ray_here.get_runtime_context().gcs_address.rpartition(":")[2])
        requests = UnmetRequests(1e-3)
        with pytest.raises(InvalidRequest, match=r"num_cpus=64; the instances have 1 x \(num_cpus=2\)"):
            asyncio.run(asyncio.wait_for(watch_unmet(unmet_socket(one_ray / "r", port), requests, print), 100))
    finally:
        ray_here.cancel(task)

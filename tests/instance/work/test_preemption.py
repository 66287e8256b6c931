"""What SIGTERM does while a trainer of Ray Train runs in the driver.

``tests/jobs/test_training.py`` drains real nodes.
"""

import os
import signal

import pytest

from raysm.instance import ray_internals
from raysm.instance.work.preemption import draining


@pytest.fixture
def sigterm():
    """Set a handler of SIGTERM for a test."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda handler: signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGTERM, before)


def test_a_handler_of_the_users_own_stays(sigterm):
    received = []
    sigterm(lambda number, frame: received.append(number))
    draining(lambda: os.kill(os.getpid(), signal.SIGTERM), 60.0)()
    assert received == [signal.SIGTERM]


def test_a_release_of_ray_without_it_ends_the_training_as_before_and_says_so(
    sigterm, monkeypatch, capsys
):
    missing = ray_internals.Internal("ray.train", "no_such_name", "test")
    monkeypatch.setattr(ray_internals, "PREEMPTION_INFO", missing)

    def rays_own(number, frame):
        raise SystemExit(1)

    rays_own.__module__ = "ray._private.worker"
    sigterm(rays_own)
    with pytest.raises(SystemExit):
        draining(lambda: os.kill(os.getpid(), signal.SIGTERM), 60.0)()
    assert "cannot tell Ray Train" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is rays_own

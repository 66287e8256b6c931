"""What SIGTERM does while a trainer of Ray Train runs in the driver.

``tests/jobs/test_training.py`` drains real nodes.
"""

import os
import signal
import subprocess
import sys

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


WATCHER_NEVER_STARTS = """
import os, signal, threading, ray
from raysm.instance.work.preemption import draining

@ray.remote(num_cpus=1000)
class PreemptionWatcher:
    pass

def run():
    os.kill(os.getpid(), signal.SIGTERM)
    for thread in threading.enumerate():
        if thread.name == "drain":
            thread.join()

ray.init(num_cpus=2, include_dashboard=False)
watcher = PreemptionWatcher.remote()
draining(run, {grace_s})()
print("draining:", len(ray._private.state.state.get_draining_nodes()))
"""


@pytest.mark.parametrize(
    ("grace_s", "draining_nodes", "said"),
    [
        (60.0, 1, "Ray's 1 node drain and end in"),
        (0.0, 0, "no node of Ray drains, because no actor started on one in time"),
    ],
)
def test_an_actor_of_ray_train_that_never_starts_leaves_time_to_drain(
    grace_s, draining_nodes, said
):
    if ray_internals.PREEMPTION_INFO.find() is None:
        pytest.skip("this release of Ray has no ray.train.get_preemption_info()")
    program = WATCHER_NEVER_STARTS.format(grace_s=grace_s)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240
    )
    assert f"draining: {draining_nodes}" in ended.stdout, ended.stderr
    assert said in ended.stderr


WATCHER_STARTS_LATE = """
import os, signal, time, ray
from raysm.instance.work.preemption import draining

@ray.remote(num_cpus=0)
def late():
    time.sleep(3)

@ray.remote(num_cpus=0)
class PreemptionWatcher:
    def __init__(self, waits_for):
        pass

    def is_there(self):
        return True

def run():
    watcher = PreemptionWatcher.remote(late.remote())
    os.kill(os.getpid(), signal.SIGTERM)
    return ray.get(watcher.is_there.remote(), timeout=60)

ray.init(num_cpus=2, include_dashboard=False)
assert draining(run, 100.0)()
while not ray._private.state.state.get_draining_nodes():
    time.sleep(0.1)
print("the watcher runs, and the node drains")
"""


def test_nodes_drain_only_when_the_actor_that_tells_the_ranks_has_started():
    if ray_internals.PREEMPTION_INFO.find() is None:
        pytest.skip("this release of Ray has no ray.train.get_preemption_info()")
    ended = subprocess.run(
        [sys.executable, "-c", WATCHER_STARTS_LATE], capture_output=True, text=True, timeout=240
    )
    assert "the watcher runs, and the node drains" in ended.stdout, ended.stderr

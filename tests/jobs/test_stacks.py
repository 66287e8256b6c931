"""``raysm stacks`` of a job that hangs: the line at which each process stands, on all instances."""

import sys

import pytest

import raysm
from raysm.errors import InvalidRequest
from tests.support.waiting import until

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and memfd"),
]

SCRIPT = """\
import time

import ray

ray.init()


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def stand(index):
    print("stands", index, flush=True)
    if index:
        time.sleep(3600)  # the line of the second task
    time.sleep(3601)


ray.get([stand.remote(index) for index in range(2)])
"""


def sources_of(job):
    """Return the host and the line of each process that runs the user's code."""
    threads = [(each.host, each.thread) for each in job.stacks().processes if each.thread]
    return {(host, thread.own_frame.source) for host, thread in threads if thread.own_frame}


def test_each_process_of_both_instances_is_shown_with_its_line_and_its_native_frames(tmp_path):
    script = tmp_path / "hang.py"
    script.write_text(SCRIPT)
    job = raysm.submit(raysm.Script(str(script)), cluster=raysm.Cluster(count=2))
    try:
        until(lambda: any("stands" in line.text for line in job.lines()))
        found = set()
        # Ray's workers start one after the other.
        until(lambda: len(found.update(sources_of(job)) or found) >= 3)
        assert {source for _, source in found} == {
            "time.sleep(3600)  # the line of the second task",
            "time.sleep(3601)",
            "ray.get([stand.remote(index) for index in range(2)])",
        }
        assert len({host for host, source in found if "sleep" in source}) == 2
        stacks = job.stacks(native=True)
        assert "no native frames" not in str(stacks)
        native = {
            each.host
            for each in stacks.processes
            if any(frame.is_native and "sleep" in frame.function for frame in each.thread.frames)
        }
        assert len(native) == 2
    finally:
        job.stop()
    job.wait(timeout=120)
    with pytest.raises(InvalidRequest, match="has ended"):
        job.stacks()

"""A whole Ray cluster goes with the process that started its job."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.leftovers import assert_nothing_left, left_behind

OWNER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from raysm.request import Cluster
from tests.support.jobs import script_request, started

root = Path(sys.argv[2])
code = '''
import ray, time
ray.init()
@ray.remote
def work():
    time.sleep(1000)
waiting = [work.remote() for _ in range(4)]
print("working")
time.sleep(1000)
'''
with started(script_request(root, code, cluster=Cluster(count=2)), root, "process") as (job, log):
    log.wait_for_text("working")
    print("working", flush=True)
    job.wait()
"""


@pytest.mark.long
def test_when_the_owner_of_a_job_is_killed_no_process_of_its_ray_cluster_remains(tmp_path):
    root = tmp_path / "job"
    root.mkdir()
    arguments = [sys.executable, "-c", OWNER, str(Path(__file__).parents[2]), str(root)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout.readline() == "working\n"
            running = left_behind(root, owner.pid)
        finally:
            owner.kill()
    assert len(running) > 10
    assert_nothing_left(root, owner.pid)

"""The life cycle of clusters of real Ray, on instances of kind namespace: what only Ray itself can show, each once."""

import pytest

from raysm.core.protocol.events import State
from raysm.core.request import Cluster
from tests.support.jobs import ENDS_S, NOTICES_LOSS_SOON, script_request, started

pytestmark = pytest.mark.namespace

SILENCE_S = 600.0
"""So long may an instance be silent: no loss is known by waiting, however slow the machine."""

ORPHAN_AND_SIGTERM = """
import os, signal, subprocess, sys, time, ray
subprocess.Popen(["sh", "-c", "sleep 0.2 & exec true"]).wait()
def is_orphan(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split("(")[1].rsplit(")", 1)[0] == "sleep"
    except OSError:
        return False
deadline = time.time() + 60
while any(map(is_orphan, filter(str.isdigit, os.listdir("/proc")))):
    assert time.time() < deadline, "the orphan was never reaped"
    time.sleep(0.05)
print("no orphan is left", flush=True)
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0, label_selector={"raysm.io/host": "algo-2"})
def weights():
    return "weights of algo-2"
def save(signum, frame):
    with open(os.environ["SM_MODEL_DIR"] + "/checkpoint", "w") as file:
        file.write(ray.get(weights.remote()))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("user code runs", flush=True)
while True:
    time.sleep(0.1)
"""

BLOCKS = """
import time, ray, raysm
ray.init(log_to_driver=False)
def work(block):
    # What is left after a third waits until an instance is lost.
    while block.start > 20 and sum(node["Alive"] for node in ray.nodes()) == 3:
        time.sleep(0.1)
    return sum(range(block.start, block.stop))
total = 0
for done, (block, value) in enumerate(raysm.map_blocks(work, raysm.row_blocks(60, 1), num_cpus=0.5)):
    total += value
    if done == 20:
        print("a third is done", flush=True)
print("the sum is", total, flush=True)
"""


@pytest.mark.long
def test_the_loss_of_an_instance_is_survived_where_the_request_says_so_and_its_blocks_are_done_by_the_others(
    tmp_path,
):
    cluster = Cluster(count=3, on_instance_loss="continue", silence_s=SILENCE_S)
    request = script_request(tmp_path, BLOCKS, cluster=cluster)
    with started(request, tmp_path / "job", environment=NOTICES_LOSS_SOON) as (job, log):
        log.wait_for_text("a third is done")
        job.kill("algo-3")
        outcome = job.wait(timeout_s=ENDS_S)
        assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0, "algo-3": 137}
        assert [event.host for event in log.events(State) if event.name == "lost"] == ["algo-3"]
        assert "the sum is 1770" in log.text()


def test_orphans_are_reaped_and_on_sigterm_user_code_saves_its_work_while_ray_lives_on_every_instance(
    tmp_path,
):
    request = script_request(tmp_path, ORPHAN_AND_SIGTERM, cluster=Cluster(count=2))
    with started(request, tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        assert "no orphan is left" in log.text()
        job.stop()
        outcome = job.wait(timeout_s=ENDS_S)
        assert outcome.status == "Stopped"
        assert (job.model_dir / "checkpoint").read_text() == "weights of algo-2"
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0}

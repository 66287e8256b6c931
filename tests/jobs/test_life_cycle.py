"""Each row of the life cycle's table, provoked for real on instances of kind namespace."""

import os
import signal
import time

import pytest

from raysm.contract.events import State
from raysm.contract.result import MAX_REASON
from raysm.request import Cluster
from tests.support.jobs import completed, script_request, started
from tests.support.processes import inside, one

pytestmark = pytest.mark.namespace

KNOWN_S = 20.0
"""A loss is known within this: long before the silence that is allowed is over. How soon, ``test_faults`` measures."""

ENDED_S = 20.0
"""Who has done its work is gone within this, however slow the machine; ``benchmarks/lifecycle.py`` measures it."""

SLEEP = """
import time
print("user code runs", flush=True)
time.sleep(300)
"""

UNTIL_THREE_NODES = """
import sys, time, ray
ray.init(log_to_driver=False)
print("user code runs", flush=True)
def alive():
    return sum(node["Alive"] for node in ray.nodes())
while alive() == 3:
    time.sleep(0.1)
print("a node is gone", flush=True)
deadline = time.time() + 60
while alive() != 3:
    if time.time() > deadline:
        sys.exit("the node did not come back")
    time.sleep(0.1)
print("three nodes again", flush=True)
"""

BLOCKS = """
import time, ray, raysm
ray.init(log_to_driver=False)
def work(block):
    time.sleep(0.3)
    return sum(range(block.start, block.stop))
total = 0
for done, (block, value) in enumerate(raysm.map_blocks(work, raysm.row_blocks(60, 1), num_cpus=0.5)):
    total += value
    if done == 20:
        print("a third is done", flush=True)
print("the sum is", total, flush=True)
"""

SAVE_ON_SIGTERM = """
import os, signal, sys, time, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0, label_selector={"raysm.io/host": "algo-2"})
def weights():
    return "weights of algo-2"
def save(signum, frame):
    with open(os.environ["SM_MODEL_DIR"] + "/checkpoint", "w") as file:
        file.write(ray.get(weights.remote()))
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("user code runs", flush=True)
while True:
    time.sleep(0.1)
"""


def test_a_job_that_is_done_is_gone_soon_and_so_are_its_workers(tmp_path):
    outcome, log, _ = completed(script_request(tmp_path, "print('the last line', flush=True)"), tmp_path / "job")
    assert outcome.status == "Completed", outcome.failure_reason
    assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0, "algo-3": 0}
    last_s = time.time() - (time.monotonic() - log.wait_for_text("the last line")[0])
    assert max(outcome.exited_s.values()) - last_s <= ENDED_S


def test_a_script_that_raises_fails_the_job_with_its_exception_first(tmp_path):
    code = "def layer(name):\n    raise ValueError(f'no such layer: {name}')\nlayer('conv9')\n"
    outcome, log, _ = completed(script_request(tmp_path, code, cluster=Cluster(count=2)), tmp_path / "job")
    assert outcome.status == "Failed"
    assert outcome.failure_reason.startswith("ValueError: no such layer: conv9\n")
    assert "in layer" in outcome.failure_reason
    assert "runpy" not in outcome.failure_reason
    assert len(outcome.failure_reason) <= MAX_REASON
    assert outcome.exit_codes == {"algo-1": 1, "algo-2": 0}
    assert "Traceback (most recent call last)" in log.text()


def test_a_script_that_exits_with_3_ends_the_head_with_3(tmp_path):
    outcome, _, _ = completed(
        script_request(tmp_path, "import sys\nsys.exit(3)\n", cluster=Cluster(count=2)), tmp_path / "job"
    )
    assert outcome.status == "Failed"
    assert "3" in outcome.failure_reason.splitlines()[0]
    assert "script.py" in outcome.failure_reason
    assert outcome.exit_codes == {"algo-1": 3, "algo-2": 0}


def test_a_script_that_ends_without_python_noticing_is_explained_by_what_it_wrote_last(tmp_path):
    code = "import os, sys\nprint('CUDA error: device lost', file=sys.stderr, flush=True)\nos._exit(7)\n"
    outcome, _, _ = completed(script_request(tmp_path, code, cluster=Cluster(count=1)), tmp_path / "job")
    assert outcome.exit_codes == {"algo-1": 7}
    assert "7" in outcome.failure_reason.splitlines()[0]
    assert "CUDA error: device lost" in outcome.failure_reason


def test_a_script_killed_as_the_kernel_does_when_memory_is_out_is_explained(tmp_path):
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    outcome, _, _ = completed(script_request(tmp_path, code, cluster=Cluster(count=2)), tmp_path / "job")
    assert outcome.status == "Failed"
    assert "SIGKILL" in outcome.failure_reason.splitlines()[0]
    assert "memory" in outcome.failure_reason
    assert outcome.exit_codes == {"algo-1": 137, "algo-2": 0}


def test_the_death_of_the_heads_pid_1_is_known_to_the_workers_at_once(tmp_path):
    with started(script_request(tmp_path, SLEEP), tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        killed_s = time.time()
        job.kill("algo-1")
        outcome = job.wait(timeout_s=60)
        assert outcome.status == "Failed"
        assert outcome.exit_codes == {"algo-1": 137, "algo-2": 1, "algo-3": 1}
        for host in ("algo-2", "algo-3"):
            assert outcome.exited_s[host] - killed_s <= KNOWN_S
            assert "algo-1" in job.paths(host).failure.read_text()


def test_the_death_of_a_workers_pid_1_is_known_at_once_and_ends_the_job(tmp_path):
    with started(script_request(tmp_path, SLEEP), tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        killed_s = time.monotonic()
        job.kill("algo-3")
        assert log.wait_for_state("lost", "algo-3", KNOWN_S)[0] - killed_s <= KNOWN_S
        outcome = job.wait(timeout_s=60)
        assert outcome.status == "Failed"
        assert outcome.failure_reason.splitlines()[0].count("algo-3") == 1
        assert outcome.exit_codes == {"algo-1": 1, "algo-2": 0, "algo-3": 137}


def test_the_loss_of_a_worker_is_survived_where_the_request_says_so(tmp_path):
    code = (
        "import time, os\nprint('user code runs', flush=True)\n"
        "while not os.path.exists(os.environ['SM_MODEL_DIR'] + '/go'): time.sleep(0.05)\n"
    )
    request = script_request(tmp_path, code, cluster=Cluster(count=3, on_instance_loss="continue"))
    with started(request, tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        job.kill("algo-3")
        log.wait_for_state("lost", "algo-3", KNOWN_S)
        (job.model_dir / "go").touch()
        outcome = job.wait(timeout_s=60)
        assert outcome.status == "Completed", outcome.failure_reason
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0, "algo-3": 137}


def test_blocks_of_a_lost_instance_are_done_by_the_others(tmp_path):
    request = script_request(tmp_path, BLOCKS, cluster=Cluster(count=3, on_instance_loss="continue"))
    with started(request, tmp_path / "job") as (job, log):
        log.wait_for_text("a third is done")
        job.kill("algo-3")
        outcome = job.wait(timeout_s=150)
        assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
        assert "the sum is 1770" in log.text()


def test_a_raylet_that_dies_is_started_again_and_the_job_goes_on(tmp_path):
    with started(script_request(tmp_path, UNTIL_THREE_NODES), tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        os.kill(one(job.instances["algo-2"].pid, "/raylet/raylet"), signal.SIGKILL)
        outcome = job.wait(timeout_s=120)
        assert outcome.status == "Completed", outcome.failure_reason
        assert "three nodes again" in log.text()
        told = [(event.name, event.host) for event in log.events(State) if event.name in ("lost", "rejoined")]
        assert told[-1] == ("rejoined", "algo-2")


def test_the_death_of_the_gcs_fails_the_job_with_a_reason_that_names_ray(tmp_path):
    request = script_request(tmp_path, SLEEP, cluster=Cluster(count=2))
    with started(request, tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        killed_s = time.time()
        os.kill(one(job.instances["algo-1"].pid, "gcs_server"), signal.SIGKILL)
        outcome = job.wait(timeout_s=60)
        assert outcome.status == "Failed"
        assert "Ray" in outcome.failure_reason
        assert outcome.exit_codes == {"algo-1": 1, "algo-2": 0}
        assert outcome.ended_s - killed_s <= 15


def test_on_sigterm_user_code_saves_its_work_while_ray_lives_on_every_instance(tmp_path):
    with started(script_request(tmp_path, SAVE_ON_SIGTERM), tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        job.stop()
        outcome = job.wait(timeout_s=60)
        assert outcome.status == "Stopped"
        assert (job.model_dir / "checkpoint").read_text() == "weights of algo-2"
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0, "algo-3": 0}


def test_a_payload_that_was_changed_on_its_way_is_refused_with_2(tmp_path):
    damage = (
        "cp -r /opt/ml/input/data/raysm /tmp/p && echo '{}' > /tmp/p/request.json && "
        "mount --bind /tmp/p /opt/ml/input/data/raysm && exec python -m raysm.bootstrap"
    )
    outcome, log, _ = completed(
        script_request(tmp_path, SLEEP, cluster=Cluster(count=2)), tmp_path / "job", command=("sh", "-c", damage)
    )
    assert outcome.status == "Failed"
    assert outcome.exit_codes == {"algo-1": 2, "algo-2": 2}
    assert "'request.json' does not match its digest" in outcome.failure_reason
    assert "\n" not in outcome.failure_reason
    assert "Traceback" not in log.text()
    assert outcome.ended_s - outcome.started_s < KNOWN_S


def test_orphans_of_user_code_are_reaped_by_pid_1(tmp_path):
    code = """
import os, subprocess, time
subprocess.Popen(["sh", "-c", "sleep 0.2 & exec true"]).wait()
print("user code runs", flush=True)
deadline = time.time() + 20
def zombies():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, state = file.read().split("(")[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "sleep":
            return True
    return False
while zombies():
    assert time.time() < deadline, "the orphan was never reaped"
    time.sleep(0.05)
print("no zombie", flush=True)
"""
    request = script_request(tmp_path, code, cluster=Cluster(count=1))
    outcome, log, _ = completed(request, tmp_path / "job")
    assert outcome.status == "Completed", outcome.failure_reason
    assert "no zombie" in log.text()


def test_killing_the_job_leaves_no_process_in_any_instance(tmp_path):
    with started(script_request(tmp_path, SLEEP, cluster=Cluster(count=2)), tmp_path / "job") as (job, log):
        log.wait_for_text("user code runs")
        running = [pid for instance in job.instances.values() for pid in inside(instance.pid)]
    assert len(running) > 10
    assert not [pid for pid in running if os.path.exists(f"/proc/{pid}")]

"""Training on real instances: scripts written for torchrun, and loops on Ray Train."""

import ast
import json
import re

import pytest

import raysm
from raysm.core.protocol.events import Metric
from raysm.core.protocol.job_api import PROCESSING
from raysm.core.request import Cluster, Input, JobRequest
from raysm.instance.ray_internals import PREEMPTION_INFO
from tests.support.jobs import (
    ENDS_S,
    NOTICES_LOSS_SOON,
    completed,
    script_request,
    started,
    training_request,
)

VARIABLES = """
import json, os, signal, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "GROUP_WORLD_SIZE",
         "TORCHELASTIC_RESTART_COUNT", "SM_CURRENT_HOST"]
seen = [None] * dist.get_world_size()
mine = {name: os.environ[name] for name in names}
mine |= {"args": sys.argv[1:], "main": __name__, "cwd": sorted(os.listdir("."))}
dist.all_gather_object(seen, mine)
def save(signum, frame):
    if dist.get_rank() == 0:
        with open("seen.json", "w") as file:
            json.dump(seen, file)
        with open(os.environ["SM_MODEL_DIR"] + "/model.bin", "wb") as file:
            file.write(b"weights " * 2_000_000)
    dist.destroy_process_group()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("hello", flush=True)
time.sleep(300)
"""

# Rank 0 hangs as in a collective call, and fails when it is ended; without torch, which is 2 s of a
# core a worker.
KILLED_THEN_WRONG = """
import os, pathlib, signal, time
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("attempt", attempt, flush=True)
if os.environ["RANK"] == "0":
    def fail(signum, frame):
        raise RuntimeError("Connection closed by peer")
    signal.signal(signal.SIGTERM, fail)
    pathlib.Path(f"attempt-{attempt}").touch()
    time.sleep(300)
while not pathlib.Path(f"attempt-{attempt}").exists():
    time.sleep(0.02)
if attempt == "0":
    os.kill(os.getpid(), signal.SIGKILL)
raise ValueError("no such layer: conv9")
"""

UNTIL_ALONE = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "of", dist.get_world_size(), flush=True)
while dist.get_world_size() > 1:
    dist.barrier()
    time.sleep(0.05)
with open("weights.pt", "w") as file:
    file.write("of " + os.environ["SM_CURRENT_HOST"])
"""

CALLED_AWS = """
import socket
socket.sethostname("aws")  # as on every host of SageMaker; it resolves nowhere
import torch, torch.distributed as dist
dist.init_process_group("gloo")
sums = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(sums)
if dist.get_rank() == 0:
    open("sum", "w").write(str(sums.item()))
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.namespace
def test_two_hosts_called_aws_train_in_a_processing_job_which_names_no_interface(tmp_path):
    request = training_request(tmp_path, CALLED_AWS, cluster=Cluster(count=2))
    outcome, log, result = completed(request, tmp_path / "job", api=PROCESSING)
    assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
    assert (result / "sum").read_text() == "3.0"


@pytest.mark.long
@pytest.mark.namespace
def test_a_torchrun_script_sees_on_two_instances_what_torchrun_sets_and_a_stop_reaches_every_worker(
    tmp_path,
):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "one.txt").write_text("1")
    request = training_request(
        tmp_path,
        VARIABLES,
        cluster=Cluster(count=2),
        workers_per_instance=2,
        args=["-a", "resnet 18", "--epochs=10", "images/"],
        inputs={"images": Input(str(tmp_path / "images"))},
    )
    with started(request, tmp_path / "job") as (job, log):
        for rank in range(4):
            log.wait_for_text(f"[rank {rank}] hello")
        job.stop()
        outcome = job.wait(timeout_s=ENDS_S)
        assert outcome.status == "Stopped", f"{outcome.failure_reason}\n{log.text()}"
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0}
        seen = json.loads((job.model_dir / "seen.json").read_text())  # written where the script ran
        assert (job.model_dir / "model.bin").stat().st_size == 16_000_000
    assert [rank["RANK"] for rank in seen] == ["0", "1", "2", "3"]
    assert [rank["LOCAL_RANK"] for rank in seen] == ["0", "1", "0", "1"]
    assert (
        [rank["GROUP_RANK"] for rank in seen]
        == [rank["NODE_RANK"] for rank in seen]
        == ["0", "0", "1", "1"]
    )
    assert [rank["SM_CURRENT_HOST"] for rank in seen] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    for rank in seen:
        sizes = (rank["WORLD_SIZE"], rank["LOCAL_WORLD_SIZE"], rank["GROUP_WORLD_SIZE"])
        assert sizes == ("4", "2", "2")
        assert rank["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert rank["main"] == "__main__"
        assert rank["args"] == ["-a", "resnet 18", "--epochs=10", "images/"]
        assert {"main.py", "images"} <= set(rank["cwd"])
    lines = [(host, line) for _, host, line in log.lines]
    assert all(("algo-1", f"[rank {rank}] hello") in lines for rank in range(4))
    assert {event.host for event in log.events(Metric) if event.name == "cpu_percent"} == {
        "algo-1",
        "algo-2",
    }


def test_after_a_killed_worker_all_start_anew_and_the_first_to_raise_is_the_reason(tmp_path):
    request = training_request(
        tmp_path,
        KILLED_THEN_WRONG,
        cluster=Cluster(count=1),
        workers_per_instance=2,
        max_restarts=1,
    )
    outcome, log, _ = completed(request, tmp_path / "job", kind="process")
    assert outcome.status == "Failed"
    assert "rank 1 on algo-1: killed by SIGKILL" in log.text()
    assert all(
        f"[rank {rank}] attempt {attempt}" in log.text()
        for rank in range(2)
        for attempt in range(2)
    )
    first, *rest = outcome.failure_reason.splitlines()
    assert first == "rank 1 on algo-1: ValueError: no such layer: conv9"
    assert rest[0] == "Traceback (most recent call last):"
    assert 'raise ValueError("no such layer: conv9")' in "".join(rest)
    # Each worker has said what it raised, and nobody says it again.
    assert not [
        text for _, _, text in log.lines if "Traceback" in text and not text.startswith("[rank ")
    ]


# Who goes on, and who begins anew, is decided in workloads/training/launch, and tried there in all
# orders.
@pytest.mark.long
@pytest.mark.namespace
def test_of_a_lost_instance_the_others_go_on_and_the_model_comes_to_a_head_that_only_coordinates(
    tmp_path,
):
    cluster = Cluster(count=3, coordinator_only=True, on_instance_loss="continue")
    request = training_request(tmp_path, UNTIL_ALONE, cluster=cluster)
    with started(request, tmp_path / "job", environment=NOTICES_LOSS_SOON) as (job, log):
        log.wait_for_text("[rank 1] attempt 0 of 2")
        job.kill("algo-3")
        outcome = job.wait(timeout_s=ENDS_S)
        assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
        assert "training: 2 workers on CPUs: algo-2 (rank 0), algo-3 (rank 1)" in log.text()
        assert "algo-3 lost" in log.text()
        assert "[rank 0] attempt 1 of 1" in log.text()
        assert (job.model_dir / "weights.pt").read_text() == "of algo-2"


def loop_that_one_rank_leaves(config):
    import torch

    from raysm import training

    model = torch.nn.Linear(4, 1)
    training.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.functional.mse_loss
    )
    rows = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
    for number, batch in enumerate(training.batches(rows, batch_size=16)):
        if number == 2 and training.rank() == config["leaves"]:
            break
        training.step(batch)


# Which rank is named, and why, is shown on two processes by
# features/training/cluster/launch/test_endings.
@pytest.mark.soak
def test_a_loop_that_one_rank_leaves_fails_with_the_name_of_that_rank(tmp_path):
    workload = raysm.DataParallel(
        loop_that_one_rank_leaves, config={"leaves": 1}, workers_per_instance=2
    )
    request = JobRequest(name="test-job", workload=workload.workload(), cluster=Cluster(count=1))
    outcome, log, _ = completed(
        request,
        tmp_path / "job",
        kind="process",
        function=workload.pickled(),
        source=workload.source(),
    )
    assert outcome.status == "Failed", log.text()
    first = outcome.failure_reason.splitlines()[0]
    assert first.startswith("rank 1 on algo-1: its loop ended after 2 steps")
    assert "while rank 0 on algo-1 began number 3" in first


# A trainer without torch, whose import is 2 s of a core in each worker. The last lines of workers may
# not reach the log, so that they tell an actor.
RAY_TRAIN = """
import os, time, ray, ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
@ray.remote(num_cpus=0)
class Told:
    def __init__(self):
        self.by_rank = {}
    def add(self, rank, ranks, left_s):
        self.by_rank[rank] = ranks, 0 < left_s <= 100
    def read(self):
        return sorted(self.by_rank.items())
def loop(config):
    rank = ray.train.get_context().get_world_rank()
    # In words, because Ray leaves out lines that differ by a number alone.
    print(["first", "second"][rank], "rank trains", flush=True)
    ray.train.report({"loss": float("nan"), "epoch": 7})
    while (info := ray.train.get_preemption_info()) is None:
        time.sleep(0.1)
    left_s = info.deadline_ms / 1000 - time.time()
    ray.get(config["told"].add.remote(rank, info.preempted_ranks, left_s))
ray.init()
told = Told.remote()
DataParallelTrainer(
    loop,
    train_loop_config={"told": told},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=os.environ["SM_OUTPUT_DATA_DIR"]),
).fit()
print("told", ray.get(told.read.remote()), flush=True)
print("Ray has", sum(node["Alive"] for node in ray.nodes()), "nodes", flush=True)
"""


@pytest.mark.long
@pytest.mark.namespace
def test_ray_train_learns_of_a_stop_on_every_rank_and_its_program_goes_on_when_they_have_saved(
    tmp_path,
):
    if PREEMPTION_INFO.find() is None:
        pytest.skip("this release of Ray has no ray.train.get_preemption_info()")
    environment = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300"}
    request = script_request(tmp_path, RAY_TRAIN, cluster=Cluster(count=2), environment=environment)
    with started(request, tmp_path / "job") as (job, log):
        log.wait_for_text("first rank trains")
        log.wait_for_text("second rank trains")
        job.stop()
        outcome = job.wait(timeout_s=ENDS_S)
        text = log.text()
        assert outcome.status == "Stopped", f"{outcome.failure_reason}\n{text}"
        # The nodes drain one after the other, so that a rank may learn of the first one alone.
        assert re.search("Ray's (1 node|2 nodes) drain", text), text
        found = re.search(r"told (\[.*\])", text)
        assert found, text
        told = dict(ast.literal_eval(found[1]))
        assert sorted(told) == [0, 1]
        assert all(ranks and in_time for ranks, in_time in told.values()), told
        assert "Ray has 2 nodes" in text, text
        assert text.count("raysm: loss is nan at step 7 on rank ") == 1, text
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0}, text

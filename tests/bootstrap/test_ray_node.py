"""The command line of a Ray node, and why it ended."""

import asyncio
import json
import os
import sys

import pytest

from raysm import Cluster, InstanceGroup, Ports
from raysm.bootstrap import environment
from raysm.bootstrap.children import Children
from raysm.bootstrap.ray_node import Capacity, RayNode, detect_capacity, start_arguments
from raysm.bootstrap.resources import ObjectStore
from tests.support.bootstraps import write_training
from tests.support.own_process import run_apart

CAPACITY = Capacity(cpus=4, gpus=2, memory_bytes=1000, object_store=ObjectStore(bytes=300, folder=None))
GROUPS = [
    {"instance_group_name": "work, hard", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2", "algo-10"]},
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]


def told(base, host, **variables):
    write_training(base, host, ["algo-1", "algo-10", "algo-2"], instance_groups=GROUPS)
    return environment.read({"SAGEMAKER_BASE_DIR": str(base)} | variables)


def arguments(
    base, host="algo-1", *, cluster=None, ports=None, capacity=CAPACITY, head_address=None, address="10.0.0.1"
):
    return start_arguments(
        environment=told(base, host),
        cluster=cluster or Cluster(count=3),
        ports=ports or Ports(),
        capacity=capacity,
        head_address=head_address,
        node_address=address,
    )


def test_the_head_listens_on_the_ports_of_the_request(tmp_path):
    found = arguments(tmp_path)
    assert found[:3] == ["start", "--block", "--head"]
    assert {
        "--port=6379",
        "--dashboard-port=8265",
        "--dashboard-host=0.0.0.0",
        "--node-ip-address=10.0.0.1",
        "--node-manager-port=6381",
        "--object-manager-port=6382",
        "--runtime-env-agent-port=6383",
        "--dashboard-agent-listen-port=6384",
        "--dashboard-agent-grpc-port=6385",
        "--metrics-export-port=6386",
        "--min-worker-port=10002",
        "--max-worker-port=19999",
        "--num-cpus=4",
        "--num-gpus=2",
        "--memory=700",
        "--object-store-memory=300",
        "--temp-dir=/tmp/ray",
        "--disable-usage-stats",
    } <= set(found)


def test_ray_chooses_the_ports_that_the_request_leaves_to_it(tmp_path):
    # Without these options, Ray takes its fixed ports, which two nodes of one address would both take.
    found = arguments(tmp_path, ports=Ports(dashboard_agent=0, worker_min=0))
    assert {"--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0"} <= set(found)


def test_a_node_says_its_host_group_type_and_rank(tmp_path):
    found = arguments(tmp_path, "algo-10", head_address="10.0.0.1:6379")
    labels = next(text for text in found if text.startswith("--labels="))
    assert labels == (
        "--labels=raysm.io/host=algo-10,raysm.io/group=work__hard,raysm.io/instance-type=ml.g5.xlarge,raysm.io/rank=2"
    )
    resources = json.loads(next(text for text in found if text.startswith("--resources=")).removeprefix("--resources="))
    assert resources == {"host:algo-10": 1, "group:work_ hard": 1, "instance_type:ml.g5.xlarge": 1}


def test_a_head_that_only_coordinates_offers_no_cpu_and_no_gpu(tmp_path):
    groups = (InstanceGroup("head", "ml.t3.medium", 1), InstanceGroup("work, hard", "ml.g5.xlarge", 2))
    cluster = Cluster(groups=groups, head="head", coordinator_only=True)
    assert {"--num-cpus=0", "--num-gpus=0"} <= set(arguments(tmp_path, cluster=cluster))
    worker = arguments(tmp_path, "algo-2", cluster=cluster, head_address="10.0.0.1:6379")
    assert {"--num-cpus=4", "--num-gpus=2"} <= set(worker)


def test_what_the_variables_say_wins_over_what_is_detected(tmp_path):
    for name in ("proc", "dev/shm"):
        (tmp_path / "root" / name).mkdir(parents=True)
    (tmp_path / "root/proc/meminfo").write_text("MemTotal: 8388608 kB\n")
    variables = {"RAYSM_CPUS": "3", "RAYSM_MEMORY_BYTES": "4000000000", "RAYSM_OBJECT_STORE_BYTES": "90000000"}
    found = detect_capacity(told(tmp_path, "algo-1", **variables), {"CUDA_VISIBLE_DEVICES": "0"}, tmp_path / "root")
    assert (found.cpus, found.gpus, found.memory_bytes, found.object_store.bytes) == (3, 1, 4 * 10**9, 90_000_000)
    detected = detect_capacity(told(tmp_path, "algo-1"), {"CUDA_VISIBLE_DEVICES": ""}, tmp_path / "root")
    assert (detected.gpus, detected.memory_bytes) == (0, 8 * 2**30)
    assert detected.cpus >= 1


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (
            "2026-01-01 10:00:00,000\tERR scripts.py:1307 -- Some Ray subprocesses exited unexpectedly:\n"
            "2026-01-01 10:00:00,000\tERR scripts.py:1311 --   raylet [exit code=-9]\n"
            "2026-01-01 10:00:00,000\tERR scripts.py:1315 -- Remaining processes will be killed.\n",
            "raylet [exit code=-9]",
        ),
        (
            "Some Ray subprocesses exited unexpectedly:\n"
            "----- BEGIN gcs_server.out tail (exit code(s)=-9 (signal 9)) -----\n"
            + "[2026-01-01 10:00:00,000 I 1 1] (gcs_server) gcs_server.cc:1: noise\n" * 100
            + "----- END gcs_server.out tail (exit code(s)=-9 (signal 9)) -----\nRemaining processes will be killed.\n",
            "gcs_server [exit code=-9 (signal 9)]",
        ),
        ("Traceback (most recent call last):\n  File x\nValueError: no such port\n", "File x ValueError: no such port"),
        ("", "it exited with code 1 without a word"),
    ],
)
def test_why_a_node_ended_is_what_ray_said_last(printed, why):
    async def scenario():
        children = Children()
        code = f"import sys; sys.stdout.write({printed!r}); sys.exit(1)"
        node = RayNode(children, [sys.executable, "-S", "-c", code], os.environ)
        await asyncio.wait_for(node.ended, 90)
        said = node.why()
        node.close()
        children.close()
        return said

    assert run_apart(scenario) == why

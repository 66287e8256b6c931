"""An instance before it begins: what it was told, checked, and what its children are told."""

import asyncio
import dataclasses
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import raysm
from raysm import JobRequest, Similarity
from raysm.core.protocol import events, payload
from raysm.core.protocol.paths import Paths
from raysm.core.request import Input
from raysm.errors import ClusterNotFormed, InvalidConfig
from raysm.instance.environment import read_resource_config
from raysm.instance.exit_status import STOPPED, ExitStatus
from raysm.instance.head import Head
from raysm.instance.worker import Worker
from tests.support.bootstraps import Cluster, live, request, write_training
from tests.support.payloads import pack_payload


@pytest.mark.parametrize("cluster", [{"coordinator_only": True}, {"min_instances": 2}])
def test_a_job_with_fewer_instances_than_it_can_ever_use_does_not_begin(tmp_path, cluster):
    with pytest.raises(InvalidConfig, match="the job has 1 instances|no other instance to work"):
        Cluster(tmp_path, request(2, **cluster), hosts=["algo-1"]).prepare("algo-1")


def test_a_processing_job_is_told_no_interface_and_takes_the_one_that_has_its_address(tmp_path):
    instance = Cluster(tmp_path, request(2), processing=True).prepare("algo-2")
    assert instance.environment.network_interface is None
    told = instance.at("127.0.0.1").ray_environment()
    names = (
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
        "SM_NETWORK_INTERFACE_NAME",
    )
    assert [told[name] for name in names] == ["lo"] * 4


def test_the_processes_of_a_job_reach_its_own_instances_without_a_proxy(tmp_path):
    cluster = Cluster(tmp_path, request(2), variables={"http_proxy": "http://proxy.example:3128"})
    told = cluster.prepare("algo-2").at("192.0.2.2").ray_environment("192.0.2.1")
    assert {"127.0.0.1", "algo-1", "192.0.2.1", "192.0.2.2"} <= set(told["no_proxy"].split(","))


def test_an_interface_that_was_told_but_is_not_there_is_replaced_by_the_one_that_has_the_address(
    tmp_path,
):
    instance = Cluster(tmp_path, request(2), network_interface_name="nosuch0").prepare("algo-2")
    assert instance.at("127.0.0.1").environment.network_interface == "lo"
    assert instance.at("192.0.2.1").environment.network_interface == "nosuch0"


@pytest.mark.parametrize(
    ("size", "distribution", "options", "count"),
    [
        (1000, "FullyReplicated", {}, ["--workers=0"]),
        (2 << 20, "FullyReplicated", {}, []),
        (1000, "ShardedByS3Key", {}, []),
        (1000, "FullyReplicated", {"block_rows": 10}, []),
    ],
)
def test_no_workers_start_ahead_where_the_driver_computes_a_small_similarity(
    tmp_path, size, distribution, options, count
):
    asked = dataclasses.replace(
        request(2),
        workload=raysm.Similarity(top_k=1, **options),
        inputs={"matrix": raysm.Input("/data", distribution=distribution)},
    )
    instance = Cluster(tmp_path, asked).prepare("algo-1")
    channel = instance.environment.paths.channel("matrix")
    channel.mkdir(parents=True)
    (channel / "rows.npy").write_bytes(bytes(size))
    assert [word for word in instance.ray_command(None) if word.startswith("--workers=")] == count


WHERE = Path("resourceconfig.json")


def read(**data):
    return read_resource_config(
        {"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]} | data, WHERE
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hosts": []}, "hosts: expected a list of host names"),
        ({"hosts": ["algo-1", "a b"]}, "got 'a b'"),
        ({"current_host": "algo-9"}, "current_host 'algo-9' is not one of the hosts"),
        ({"instance_groups": {}}, "instance_groups: expected a list of objects"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file(change, words):
    with pytest.raises(InvalidConfig) as caught:
        read(**change)
    assert words in str(caught.value)
    assert str(caught.value).startswith("resourceconfig.json: ")
    assert "\n" not in str(caught.value)


def test_a_worker_that_is_told_itself_as_the_head_does_not_call_there_and_says_why(tmp_path):
    # As by a wrong /etc/hosts: the head's name means loopback.
    cluster = Cluster(tmp_path, request(2, join_timeout_s=5), hosts=["localhost", "worker"])
    instance = cluster.prepare("worker")
    instance = replace(instance, environment=replace(instance.environment, addresses={}))
    with pytest.raises(ClusterNotFormed, match="localhost .* 127.0.0.1 .*this instance"):
        live(Worker, instance)


def test_a_head_that_is_told_to_stop_before_its_cluster_is_formed_ends_as_stopped(tmp_path, capfd):
    status = live(Head, Cluster(tmp_path, request(2)).prepare("algo-1"), Head.stop)
    assert status == ExitStatus(STOPPED, stopped=True)
    states = filter(None, map(events.parse, capfd.readouterr().out.splitlines()))
    assert [state.name for state in states] == ["joined", "stopping"]


def test_a_head_whose_torch_finds_no_gpu_fails_instead_of_computing_without_one(tmp_path):
    instance = Cluster(tmp_path, request(1)).prepare("algo-1")
    with pytest.raises(InvalidConfig, match="no GPU"):
        live(Head, instance, lambda head: head.fail(InvalidConfig("torch finds no GPU")))


def test_a_head_whose_control_port_is_taken_fails_at_once_and_names_the_port(tmp_path):
    cluster = Cluster(tmp_path, request(2))
    instance = cluster.prepare("algo-1")
    port = cluster.ports["control"]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(
            ClusterNotFormed, match=f"algo-1 cannot listen on its control port {port}"
        ):
            live(Head, instance)


async def print_listener_and_stop(head, port):
    while True:
        for connection in psutil.Process().net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                print(f"listens at {connection.laddr.ip}", flush=True)
                head.stop()
                return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("count", "is_named", "address"),
    [(1, False, "127.0.0.1"), (2, False, "0.0.0.0"), (2, True, "127.0.0.1")],
)
def test_a_control_port_is_open_to_other_machines_only_if_they_have_instances(
    tmp_path, capfd, count, is_named, address
):
    cluster = Cluster(tmp_path, request(count))
    instance = cluster.prepare("algo-1")
    if not is_named:
        instance = replace(instance, environment=replace(instance.environment, addresses={}))
    tasks = []

    def watch(head):
        tasks.append(asyncio.create_task(print_listener_and_stop(head, cluster.ports["control"])))

    assert live(Head, instance, watch).stopped
    assert f"listens at {address}\n" in capfd.readouterr().out


BARE = "from raysm.instance.supervisor import main; sys.exit(main())"


def bootstrapped(base, *arguments, damage=lambda paths: None):
    """Run the bootstrap of an instance; return what it left as the reason, and its stderr."""
    paths = write_training(base, "algo-1", ["algo-1"])
    request = JobRequest(
        name="a-job", workload=Similarity(top_k=3), inputs={"matrix": Input("s3://bucket/key")}
    )
    pack_payload(request, paths.payload)
    damage(paths)
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 2
    return Paths(base).failure.read_text(), ended.stderr


def test_a_malformed_file_is_one_clear_line_and_exit_two(tmp_path):
    for name in ("payload", "config"):
        reason, log = bootstrapped(
            tmp_path / name,
            "-m",
            "raysm.instance",
            damage=lambda paths, name=name: (
                paths.payload / "digests.json" if name == "payload" else paths.resource_config
            ).write_bytes(b"[]"),
        )
        assert reason
        assert "\n" not in reason
        assert "Traceback" not in reason
        assert "inside raysm" not in reason
        assert log == f"raysm: {reason}\n"


def test_an_image_without_ray_says_so(tmp_path):
    # Without site-packages, and with raysm alone: an image in which nothing is installed.
    paths = [str(Path(payload.__file__).parents[2])]
    reason, _ = bootstrapped(tmp_path, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{BARE}")
    assert reason.startswith("the package 'ray' is not installed in this image")

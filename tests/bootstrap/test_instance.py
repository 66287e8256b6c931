"""An instance before it begins: what it was told, checked, and what its children are told."""

import dataclasses

import pytest

import raysm
from raysm.errors import InvalidConfig
from tests.support.bootstraps import Cluster, request


@pytest.mark.parametrize("cluster", [{"coordinator_only": True}, {"min_instances": 2}])
def test_a_job_with_fewer_instances_than_it_can_ever_use_does_not_begin(tmp_path, cluster):
    with pytest.raises(InvalidConfig, match="the job has 1 instances|no other instance to work"):
        Cluster(tmp_path, request(2, **cluster), hosts=["algo-1"]).prepare("algo-1")


def test_a_processing_job_is_told_no_interface_and_takes_the_one_that_has_its_address(tmp_path):
    instance = Cluster(tmp_path, request(2), processing=True).prepare("algo-2")
    assert instance.environment.network_interface is None
    told = instance.at("127.0.0.1").ray_environment()
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "SM_NETWORK_INTERFACE_NAME")
    assert [told[name] for name in names] == ["lo"] * 4


def test_an_interface_that_was_told_but_is_not_there_is_replaced_by_the_one_that_has_the_address(tmp_path):
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
    assert [word for word in instance.ray_command(None, None) if word.startswith("--workers=")] == count

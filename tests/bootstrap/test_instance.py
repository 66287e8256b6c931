"""An instance before it begins: what it was told, checked, and what its children are told."""

import json
import subprocess
import sys

import pytest

from raysm.contract.paths import Paths
from raysm.errors import InvalidConfig
from tests.support.bootstraps import Cluster, request


@pytest.mark.parametrize("cluster", [{"coordinator_only": True}, {"min_instances": 2}])
def test_a_job_with_fewer_instances_than_it_can_ever_use_does_not_begin(tmp_path, cluster):
    with pytest.raises(InvalidConfig, match="the job has 1 instances|no other instance to work"):
        Cluster(tmp_path, request(2, **cluster), hosts=["algo-1"]).prepare("algo-1")


PREPARE = """
import json, sys
from raysm.bootstrap.instance import prepare
from raysm.errors import InvalidConfig
try:
    print(prepare(json.loads(sys.argv[1])).name)
except InvalidConfig as error:
    print(error)
"""


@pytest.mark.namespace
def test_a_head_that_cannot_write_the_result_says_so_before_anything_is_spent(tmp_path):
    cluster = Cluster(tmp_path, request(2))
    for host in cluster.hosts:
        Paths(cluster.base(host)).model.mkdir()
    answers = {}
    for host in cluster.hosts:
        model = str(Paths(cluster.base(host)).model)
        seal = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        environ = json.dumps(cluster.environment(host))
        command = ["unshare", "--mount", "sh", "-c", seal, model, sys.executable, "-c", PREPARE, environ]
        answers[host] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert f"{Paths(cluster.base('algo-1')).model} cannot be written by the container's user (0)" in answers["algo-1"]
    assert "run the image as root" in answers["algo-1"]
    assert answers["algo-2"] == "algo-2"  # what it could write is nobody's result


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

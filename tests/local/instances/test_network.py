"""The private network of a job: claimed, checked, and gone."""

import shutil
import subprocess

import pytest

from raysm.errors import RaysmError
from raysm.local.instances.kept import Keeper, end_all
from raysm.local.instances.network import Network
from tests.support.leftovers import assert_nothing_left

pytestmark = pytest.mark.namespace


def links():
    return subprocess.check_output(["ip", "-brief", "link"], text=True)


def link_of(network):
    return f"raysm{network.prefix.split('.', 1)[1].replace('.', '-')}"


@pytest.fixture
def network(tmp_path):
    with Network() as network:
        yield network
    assert_nothing_left(tmp_path)


@pytest.fixture
def keepers(network):
    keepers = [Keeper(f"algo-{number + 1}") for number in range(2)]
    for number, keeper in enumerate(keepers):
        keeper.call("unshare")
        network.attach(keeper, number)
    yield keepers
    end_all(keepers)


def test_networks_at_the_same_time_have_different_addresses(network):
    with Network() as other:
        assert other.prefix != network.prefix
        assert other.address(0) == f"{other.prefix}.11"


def test_a_prefix_that_a_route_covers_is_passed_over(network):
    covered = network.prefix
    with Network() as other:
        claimed = other.prefix
    subprocess.run(["ip", "route", "add", "blackhole", f"{claimed}.128/25"], check=True)
    try:
        with Network() as third:
            assert third.prefix not in (covered, claimed)
    finally:
        subprocess.run(["ip", "route", "delete", "blackhole", f"{claimed}.128/25"], check=True)


def test_this_machines_end_is_there_while_the_network_is_and_gone_on_return():
    network = Network()
    name = link_of(network)
    assert name in links()
    network.close()
    assert name not in links()
    network.close()


def test_instances_that_reach_each_other_pass_the_probe(network, keepers):
    network.probe(keepers)
    assert len(keepers) == 2


def test_instances_that_do_not_reach_each_other_are_named_with_what_to_look_for(network, keepers):
    keepers[1].call("ip", commands=[[shutil.which("ip"), "link", "set", "eth0", "down"]])
    with pytest.raises(RaysmError, match=r"algo-2 cannot connect to algo-1 at .*; a firewall of this machine drops it"):
        network.probe(keepers, patience_s=0.2)


def test_a_machine_that_does_not_reach_the_head_is_said(network, keepers):
    subprocess.run(["ip", "link", "set", link_of(network), "down"], check=True)
    with pytest.raises(RaysmError, match="this machine cannot connect to algo-1"):
        network.probe(keepers[:1], patience_s=0.2)


def test_what_ip_says_of_a_failure_is_passed_on(keepers):
    with pytest.raises(RaysmError, match="algo-1: .*ip link set nothing up: Cannot find device"):
        keepers[0].call("ip", commands=[[shutil.which("ip"), "link", "set", "nothing", "up"]])

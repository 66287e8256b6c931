"""The private network of a job: claimed, checked, and gone."""

import subprocess
from contextlib import closing

import pytest

from raysm.core.protocol.packages import default_index
from raysm.local import scenario
from raysm.local.instances.network import HostNames, Network
from raysm.local.scenario import Scenario
from tests.support.leftovers import assert_nothing_left
from tests.support.waiting import until

ADDRESSES = {"algo-1": "10.0.0.1", "algo-2": "10.0.0.2"}
ALL = "127.0.0.1 localhost\n10.0.0.1 algo-1\n10.0.0.2 algo-2\n10.0.0.2 aws\n"


@pytest.mark.parametrize(
    ("switches", "text"),
    [
        ({}, ALL),
        (
            {"silent_internet": True},
            ALL + "".join(f"192.0.2.1 {host}\n" for host in default_index().hosts),
        ),
    ],
)
def test_the_file_names_every_instance_as_the_scenario_has_it(tmp_path, switches, text):
    HostNames(ADDRESSES, Scenario(network=scenario.Network(**switches))).write(
        tmp_path / "hosts", "algo-2"
    )
    assert (tmp_path / "hosts").read_text() == text


def test_names_that_come_late_come_into_the_same_file(tmp_path):
    path = tmp_path / "hosts"
    HostNames(ADDRESSES, Scenario(network=scenario.Network(names_resolve_after_s=0.1))).write(
        path, "algo-2"
    )
    first = path.stat().st_ino
    until(lambda: path.read_text() == ALL)
    assert path.stat().st_ino == first


pytestmark = pytest.mark.namespace


@pytest.fixture
def network(tmp_path):
    with closing(Network()) as network:
        yield network
    assert_nothing_left(tmp_path)


def test_networks_at_the_same_time_have_different_addresses(network):
    with closing(Network()) as other:
        assert other.prefix != network.prefix
        assert other.address(0) == f"{other.prefix}.11"


def test_a_prefix_that_a_route_covers_is_passed_over(network):
    covered = network.prefix
    with closing(Network()) as other:
        claimed = other.prefix
    subprocess.run(["ip", "route", "add", "blackhole", f"{claimed}.128/25"], check=True)
    try:
        with closing(Network()) as third:
            assert third.prefix not in (covered, claimed)
    finally:
        subprocess.run(["ip", "route", "delete", "blackhole", f"{claimed}.128/25"], check=True)

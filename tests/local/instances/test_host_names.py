"""What /etc/hosts of an instance says, and when."""

import pytest

from raysm.contract.packages import default_index
from raysm.local.instances.network import HostNames
from raysm.local.scenario import Container, Network, Scenario
from tests.support.sagemaker_server import wait_until

ADDRESSES = {"algo-1": "10.0.0.1", "algo-2": "10.0.0.2"}
ALL = "127.0.0.1 localhost\n10.0.0.1 algo-1\n10.0.0.2 algo-2\n10.0.0.2 aws\n"


@pytest.mark.parametrize(
    ("switches", "text"),
    [
        ({}, ALL),
        ({"own_name_is_loopback": True}, ALL.replace("10.0.0.2 algo", "127.0.0.1 algo")),
        ({"silent_internet": True}, ALL + "".join(f"192.0.2.1 {host}\n" for host in default_index().hosts)),
    ],
)
def test_the_file_names_every_instance_as_the_scenario_has_it(tmp_path, switches, text):
    HostNames(ADDRESSES, Scenario(network=Network(**switches))).write(tmp_path / "hosts", "algo-2")
    assert (tmp_path / "hosts").read_text() == text


def test_names_that_come_late_come_into_the_same_file(tmp_path):
    path = tmp_path / "hosts"
    HostNames(ADDRESSES, Scenario(network=Network(names_resolve_after_s=0.1))).write(path, "algo-2")
    first = path.stat().st_ino
    wait_until(lambda: path.read_text() == ALL)
    assert path.stat().st_ino == first


def test_names_that_are_closed_before_they_come_never_do(tmp_path):
    names = HostNames(ADDRESSES, Scenario(network=Network(names_resolve_after_s=1000.0)))
    names.write(tmp_path / "hosts", "algo-2")
    names.close()
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n10.0.0.2 aws\n"


def test_a_host_name_that_is_the_name_of_another_instance_keeps_that_ones_address(tmp_path):
    scenario = Scenario(container=Container(hostname="algo-1"))
    HostNames(ADDRESSES, scenario).write(tmp_path / "hosts", "algo-2")
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n10.0.0.1 algo-1\n10.0.0.2 algo-2\n"

"""What instances as namespaces have of their own; what every kind of instance promises is tried in test_instances."""

import os
import sys
from pathlib import Path

import pytest

from raysm.contract.paths import DEFAULT_BASE, kernels_folder
from raysm.errors import InvalidRequest
from raysm.local.instances.base import InstanceSpec
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.network import INTERFACE, MAX_INSTANCES
from raysm.local.scenario import Container, Scenario
from tests.support import namespaces

PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def specs(folder, count, code="true", **container):
    made = []
    scenario = Scenario(container=Container(**container))
    for number in range(1, count + 1):
        private = folder / f"algo-{number}"
        (private / "ml").mkdir(parents=True, exist_ok=True)
        log_fd = os.open(private / "log", os.O_WRONLY | os.O_CREAT)
        made.append(
            InstanceSpec(
                host=f"algo-{number}",
                base=private / "ml",
                private=private,
                command=("sh", "-c", code),
                variables={"PATH": PATH, "HOST": f"algo-{number}"},
                log_fd=log_fd,
                scenario=scenario,
            )
        )
    return made


@pytest.fixture
def site():
    one = NamespaceSite()
    yield one
    one.close()


@pytest.fixture
def start(site, tmp_path):
    started = []

    def run(count, code="true", **container):
        started.extend(specs(tmp_path, count, code, **container))
        return site.start(started)

    yield run
    for spec in started:
        os.close(spec.log_fd)


def test_what_this_machine_lacks_is_said_or_nothing():
    assert (NamespaceSite.missing() is None) == (namespaces.why_not() is None)


@pytest.mark.namespace
def test_the_kernels_that_this_machine_has_compiled_are_those_of_its_instances(start, tmp_path):
    (instance,) = start(1, f"stat -c %i {kernels_folder()}")
    assert instance.wait(60) == 0
    assert (tmp_path / "algo-1" / "log").read_text().split() == [str(kernels_folder().stat().st_ino)]


@pytest.mark.namespace
def test_each_instance_sees_its_own_folder_as_sagemakers_and_its_own_address_under_its_name(site, start, tmp_path):
    first, second = start(2, "cat /etc/hosts; touch /opt/ml/here; echo $$")
    assert site.base_inside(tmp_path) == DEFAULT_BASE
    assert site.interface == INTERFACE
    assert first.wait(60) == second.wait(60) == 0
    for number, instance in ((1, first), (2, second)):
        assert (tmp_path / f"algo-{number}" / "ml" / "here").exists()
        log = (tmp_path / f"algo-{number}" / "log").read_text()
        assert f"{instance.address} algo-{number}" in log
        # Numbers of its own: this machine's have got far beyond.
        assert int(log.splitlines()[-1]) < 10
    assert first.address != second.address


OWN_ADDRESS = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect(("8.8.8.8", 80))
    print(socket.gethostbyname(socket.gethostname()), probe.getsockname()[0])
"""


@pytest.mark.namespace
def test_a_program_finds_the_instances_own_address_by_its_host_name_and_by_the_default_route(start, tmp_path):
    instances = start(2, f"{sys.executable} -c '{OWN_ADDRESS}'")
    for instance in instances:
        assert instance.wait(60) == 0
        assert (tmp_path / instance.host / "log").read_text().split() == [instance.address] * 2


@pytest.mark.namespace
def test_an_instance_does_not_see_the_home_of_another(start, tmp_path):
    first, second = start(2, f"touch $HOME/own; sleep 1; ls -d {tmp_path}/*/home/own")
    assert first.wait(60) == second.wait(60) == 0
    for instance in (first, second):
        seen = (tmp_path / instance.host / "log").read_text().split()
        assert seen == [str(tmp_path / instance.host / "home" / "own")]


CALL_OUT = """
import socket
try:
    socket.create_connection(("192.0.2.1", 443), timeout=50)
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.namespace
def test_a_connection_to_the_outside_is_refused_at_once(start, tmp_path):
    (instance,) = start(1, f"{sys.executable} -c '{CALL_OUT}'")
    assert instance.wait(60) == 0
    assert (tmp_path / "algo-1" / "log").read_text().split() == ["ConnectionRefusedError"]


ALL_REDUCE = """
import sys
import torch
import torch.distributed as dist
rank = int(sys.argv[1].removeprefix("algo-")) - 1
dist.init_process_group("gloo", init_method="tcp://algo-1:29500", rank=rank, world_size=2)
value = torch.ones(1) * (rank + 1)
dist.all_reduce(value)
dist.barrier()
print("sum", int(value))
dist.destroy_process_group()
"""


@pytest.mark.namespace
def test_torchs_gloo_connects_instances_without_being_told_an_interface(start, tmp_path):
    instances = start(2, f"exec {sys.executable} -c '{ALL_REDUCE}' $HOST")
    for instance in instances:
        assert instance.wait(100) == 0
        assert "sum 3" in (tmp_path / instance.host / "log").read_text()


@pytest.mark.namespace
def test_more_instances_than_the_network_has_addresses_for_are_refused(start):
    with pytest.raises(InvalidRequest, match=f"at most {MAX_INSTANCES} instances of kind 'namespace'"):
        start(MAX_INSTANCES + 1)


@pytest.mark.namespace
def test_a_foreign_name_is_not_looked_up_anywhere(start, tmp_path):
    (instance,) = start(1, "cat /etc/resolv.conf")
    assert instance.wait(60) == 0
    assert "nameserver 127.0.0.1" in (tmp_path / "algo-1" / "log").read_text()

"""What instances as namespaces have of their own; what every kind of instance promises is tried in test_instances."""

import os
import sys
from pathlib import Path

import pytest

from raysm.core.protocol.paths import DEFAULT_BASE, kernels_folder
from raysm.errors import InvalidRequest
from raysm.local.instances.base import InstanceSpec
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.network import INTERFACE, MAX_INSTANCES
from raysm.local.scenario import Container, Scenario

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux has these mounts"
)
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


SHOW = """
import os, pathlib, socket, sys, time
print(open("/etc/hosts").read().replace(chr(10), ";"))
print(socket.gethostname(), socket.gethostbyname(socket.gethostname()))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect(("8.8.8.8", 80))
    print(probe.getsockname()[0])
began = time.monotonic()
for ask in (lambda: socket.gethostbyname("example.org"), lambda: socket.create_connection(("192.0.2.1", 443), 50)):
    try:
        ask()
    except OSError as error:
        print(type(error).__name__)
print(time.monotonic() - began < 10)
pathlib.Path("/opt/ml/here").touch()
(pathlib.Path.home() / "own").touch()
time.sleep(1)
print(*pathlib.Path(sys.argv[1]).glob("*/home/own"))
print(os.stat(sys.argv[2]).st_ino)
"""


@pytest.mark.namespace
def test_each_instance_has_its_own_folder_home_address_and_name_and_no_way_out(
    site, start, tmp_path
):
    instances = start(2, f"exec {sys.executable} -c '{SHOW}' {tmp_path} {kernels_folder()}")
    assert site.base_inside(tmp_path) == DEFAULT_BASE
    assert site.interface == INTERFACE
    assert [instance.wait(60) for instance in instances] == [0, 0]
    assert instances[0].address != instances[1].address
    for instance in instances:
        folder = tmp_path / instance.host
        hosts, name, route, lookup, connection, is_fast, homes, kernels = (
            (folder / "log").read_text().splitlines()
        )
        assert f"{instance.address} {instance.host};" in hosts
        assert name == f"aws {instance.address}"
        # Ray and others find their own address so.
        assert route == instance.address
        assert (lookup, connection, is_fast) == ("gaierror", "ConnectionRefusedError", "True")
        assert (folder / "ml" / "here").exists()
        assert homes == str(folder / "home" / "own")
        # Otherwise each would compile them again.
        assert kernels == str(kernels_folder().stat().st_ino)


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
    with pytest.raises(InvalidRequest, match=f" {MAX_INSTANCES} instances"):
        start(MAX_INSTANCES + 1)

"""What instances as namespaces have of their own; what every kind of instance promises is tried in test_instances."""

import os
import sys
from pathlib import Path

import pytest

from raysm.contract.paths import DEFAULT_BASE, kernels_folder
from raysm.errors import InvalidRequest
from raysm.local.instances.base import InstanceSpec, Link
from raysm.local.instances.namespace import NamespaceSite, plan
from raysm.local.instances.network import INTERFACE, MAX_INSTANCES
from raysm.local.instances.share import Share
from raysm.local.scenario import Container, Scenario

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has these mounts")

WHOLE = Container(root_mb=0)


@pytest.fixture
def planned(tmp_path):
    """Plan an instance below ``tmp_path``."""

    def build(links=(), keep=(), container=WHOLE, base=tmp_path / "ml", **fields):
        for folder in ("model", "input"):
            (tmp_path / "ml" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "own").mkdir(exist_ok=True)
        spec = InstanceSpec(
            host="algo-1",
            base=base,
            private=tmp_path / "own",
            command=("true",),
            variables={},
            log_fd=1,
            links=links,
            share=Share(memory_bytes=8192),
            scenario=Scenario(container=container),
        )
        return plan(spec, keep, tmp_path / "hosts", tmp_path / "resolver", **fields)

    return build


def test_overlays_come_first_and_what_hides_sources_last(planned):
    mounts = planned()
    targets = [target for _, _, target, _ in mounts]
    kinds = [kind for kind, _, _, _ in mounts]
    assert kinds[0] == "overlay"
    assert "overlay" not in kinds[targets.index("/proc") :]
    assert targets[-3:] == ["/opt", "/dev/shm", "/tmp"]


@pytest.mark.parametrize("has_ml", [False, True])
def test_opt_is_the_instances_own_whether_or_not_this_machine_has_an_opt_ml(planned, tmp_path, has_ml):
    opt = tmp_path / "opt"
    (opt / "tool").mkdir(parents=True)
    if has_ml:
        (opt / "ml").mkdir()
    staged = tmp_path / "own" / "opt"
    about_opt = [mount[:3] for mount in planned(opt=opt) if str(staged) in mount[1] + mount[2]]
    assert about_opt == [
        ("bind", str(opt / "tool"), str(staged / "tool")),
        ("bind", str(tmp_path / "ml"), str(staged / "ml")),
        ("bind", str(staged), str(opt)),
    ]
    assert sorted(path.name for path in opt.iterdir()) == (["ml", "tool"] if has_ml else ["tool"])


def test_beside_the_documented_folders_there_is_little_room(planned, tmp_path):
    staged = str(tmp_path / "own" / "opt" / "ml")
    about_ml = [mount for mount in planned(container=Container(root_mb=7)) if mount[2].startswith(staged)]
    assert about_ml == [
        ("tmpfs", "root", staged, "size=7m,mode=755"),
        ("mkdir", "", f"{staged}/input", ""),
        ("bind", str(tmp_path / "ml" / "input"), f"{staged}/input", ""),
        ("mkdir", "", f"{staged}/model", ""),
        ("bind", str(tmp_path / "ml" / "model"), f"{staged}/model", ""),
    ]


def test_links_are_read_only_and_their_targets_are_made(planned, tmp_path):
    (tmp_path / "file").write_text("x")
    links = [
        Link(source=tmp_path / "file", target=tmp_path / "ml" / "a" / "file"),
        Link(source=tmp_path, target=tmp_path / "ml" / "b"),
    ]
    mounts = planned(links)
    assert [mount for mount in mounts if mount[0] == "bind_readonly"] == [
        ("bind_readonly", str(link.source), str(link.target), "") for link in links
    ]
    assert links[0].target.is_file()
    assert links[1].target.is_dir()


def test_an_instance_that_is_gone_does_not_come_back_with_what_is_mounted(planned, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError):
        planned([Link(source=tmp_path / "file", target=tmp_path / "gone" / "ml" / "file")], base=tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


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

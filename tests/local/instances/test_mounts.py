"""The plan of what a namespace instance mounts."""

import sys
from pathlib import Path

import pytest

from raysm.local.instances.base import InstanceSpec, Link
from raysm.local.instances.mounts import needed_by_python, plan
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


def test_a_root_that_can_only_be_read_is_closed_last(planned):
    mounts = planned(container=Container(read_only=True))
    assert [mount[:3] for mount in mounts[-3:]] == [("readonly", "", path) for path in ("/", "/opt", "/opt/ml")]


def test_shm_has_the_size_that_was_asked_for(planned):
    assert ("tmpfs", "shm", "/dev/shm", "size=4096,mode=1777") in planned()


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


def test_only_the_outermost_of_kept_folders_below_tmp_is_bound(planned, tmp_path):
    below = Path("/tmp/raysm-test-kept/inner")
    mounts = planned(keep=[below, below.parent, Path("/usr"), Path("/tmp")])
    into = [source for _, source, target, _ in mounts if target.startswith(str(tmp_path / "own" / "tmp"))]
    assert into == ["/tmp/raysm-test-kept"]


def test_python_needs_its_prefixes_and_raysm_itself():
    found = needed_by_python()
    assert Path(sys.prefix).resolve() in found
    assert Path(sys.base_prefix).resolve() in found
    assert Path(__file__).parents[3].resolve() in found

"""What the instances of a job find: folders, files, variables and links."""

import json
import os
import sys

import pytest

from raysm.errors import InvalidRequest
from raysm.local import channels
from raysm.local.channels import SMALL_BYTES
from raysm.local.instances.process import ProcessSite
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.preparing import Preparation
from raysm.local.scenario import Capacity, Container, Scenario


@pytest.fixture
def site():
    with ProcessSite() as site:
        yield site


def prepared(site, root, *, count=2, present=None, **fields):
    spec = JobSpec(name="j", groups=number_hosts(("g", "local", count)), **{"command": ("true",), **fields})
    return Preparation(
        spec=spec,
        root=root,
        present=present or spec.hosts,
        site=site,
        entries=channels.resolve(spec),
        scenario=Scenario(),
    )


def test_the_head_comes_first_and_each_has_its_own_files(site, tmp_path):
    specs = prepared(site, tmp_path, head="algo-2").write(lambda host: 1)
    assert [spec.host for spec in specs] == ["algo-2", "algo-1"]
    for spec in specs:
        config = json.loads((spec.base / "input/config/resourceconfig.json").read_text())
        assert config["current_host"] == spec.host


def test_who_is_absent_is_announced_and_not_prepared(site, tmp_path):
    (only,) = prepared(site, tmp_path, present=("algo-1",)).write(lambda host: 1)
    config = json.loads((only.base / "input/config/resourceconfig.json").read_text())
    assert config["hosts"] == ["algo-1", "algo-2"]
    assert not (tmp_path / "algo-2").exists()


def test_opt_ml_is_named_as_the_instance_sees_it_and_this_python_comes_first(site, tmp_path):
    job = prepared(
        site, tmp_path, count=1, command=("cat", "/opt/ml/x", "/srv/opt/ml/x"), environment={"PLACE": "at /opt/ml"}
    )
    (spec,) = job.write(lambda host: 1)
    assert spec.command == ("cat", f"{spec.base}/x", "/srv/opt/ml/x")
    assert spec.variables["PLACE"] == f"at {spec.base}"
    assert spec.variables["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)


def test_a_large_channel_is_linked_and_a_small_one_is_the_instances_own(site, tmp_path):
    (tmp_path / "job").mkdir()
    for name, size in (("large", SMALL_BYTES + 1), ("small", 1)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "f").open("wb") as file:
            file.truncate(size)
    inputs = tuple(Channel(name=name, source=tmp_path / name) for name in ("large", "small"))
    job = prepared(site, tmp_path / "job", count=1, channels=inputs)
    assert [channel.name for channel in job.linked()] == ["large"]
    (spec,) = job.write(lambda host: 1)
    assert [link.source for link in spec.links] == [tmp_path / "large"]
    assert spec.originals == (tmp_path / "large",)
    assert (spec.base / "input/data/small/f").stat().st_size == 1


def test_a_scenario_that_processes_cannot_play_is_refused_by_its_switch(site):
    site.check(Scenario(capacity=Capacity(absent=("algo-2",))))
    with pytest.raises(InvalidRequest, match="asks for container.hostname='x'.*use kind 'namespace'"):
        site.check(Scenario(container=Container(hostname="x")))


def test_a_job_that_is_gone_does_not_come_back_with_its_instances(site, tmp_path):
    with pytest.raises(FileNotFoundError):
        prepared(site, tmp_path / "gone").write(lambda host: 1)
    assert not (tmp_path / "gone").exists()

"""The folders, files, variables and links that the instances of a job find."""

import json
import os
import sys
from pathlib import Path, PurePosixPath

import pytest

from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest
from raysm.local import channels
from raysm.local.channels import SMALL_BYTES
from raysm.local.checkpoints import FolderStore
from raysm.local.instances.process import ProcessSite
from raysm.local.job_spec import Channel, Checkpoints, JobSpec, number_hosts
from raysm.local.preparing import Preparation, service_variables, write_files
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
    one = prepared(
        site, tmp_path, count=1, command=("cat", "/opt/ml/x", "/srv/opt/ml/x"), environment={"PLACE": "at /opt/ml"}
    )
    (spec,) = one.write(lambda host: 1)
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
    one = prepared(site, tmp_path / "job", count=1, channels=inputs)
    assert [channel.name for channel in one.linked()] == ["large"]
    (spec,) = one.write(lambda host: 1)
    assert [link.source for link in spec.links] == [tmp_path / "large"]
    assert spec.originals == (tmp_path / "large",)
    assert (spec.base / "input/data/small/f").stat().st_size == 1


def test_a_scenario_that_processes_cannot_play_is_refused_by_its_switch(site):
    site.check(Scenario(capacity=Capacity(absent=("algo-2",))))
    with pytest.raises(InvalidRequest, match="asks for container.hostname='x'.*use kind 'namespace'"):
        site.check(Scenario(container=Container(hostname="x")))


GROUPS = number_hosts(("work", "ml.c5.xlarge", 2), ("head", "ml.m5.large", 1))


def plain(count=1):
    return number_hosts(("homogeneousCluster", "ml.m5.large", count))


def job(**fields):
    return JobSpec(**{"name": "job", "groups": plain(), "command": ("true",), **fields})


def files(host, base, inside, **fields):
    return write_files(job(**fields), host, base, inside)


def kept(folder):
    return Checkpoints(store=FolderStore(folder), uri="s3://b/checkpoints")


def written(path):
    return json.loads(path.read_text())


def test_a_plain_job_has_one_group_and_its_hosts_stand_in_lexicographic_order(tmp_path):
    config = written(files("algo-2", tmp_path, Path("/opt/ml"), groups=plain(11)).resource_config)
    hosts = ["algo-1", "algo-10", "algo-11", *(f"algo-{i}" for i in range(2, 10))]
    assert config == {
        "current_host": "algo-2",
        "current_instance_type": "ml.m5.large",
        "current_group_name": "homogeneousCluster",
        "hosts": hosts,
        "instance_groups": [
            {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.large", "hosts": hosts}
        ],
        "network_interface_name": "eth0",
    }


def test_hosts_are_numbered_through_the_groups(tmp_path):
    config = written(files("algo-3", tmp_path, tmp_path, groups=GROUPS).resource_config)
    assert config["current_group_name"] == "head"
    assert config["current_instance_type"] == "ml.m5.large"
    assert [group["hosts"] for group in config["instance_groups"]] == [["algo-1", "algo-2"], ["algo-3"]]


def test_the_channels_that_a_host_gets_are_listed(tmp_path):
    channels = (
        Channel(name="a", source=tmp_path, content_type="text/csv"),
        Channel(name="b", source=tmp_path, distribution="ShardedByS3Key"),
        Channel(name="c", source=tmp_path, groups=("elsewhere",)),
    )
    paths = files("algo-1", tmp_path, tmp_path, channels=channels)
    config = written(paths.input_data_config)
    common = {"TrainingInputMode": "File", "RecordWrapperType": "None"}
    assert config == {
        "a": {"S3DistributionType": "FullyReplicated", "ContentType": "text/csv", **common},
        "b": {"S3DistributionType": "ShardedByS3Key", **common},
    }
    assert paths.channel("b").is_dir()


def test_only_a_job_with_checkpoints_has_their_folder_and_config(tmp_path):
    without = files("algo-1", tmp_path / "1", Path("/opt/ml"))
    assert not without.checkpoints.exists()
    assert not without.checkpoint_config.exists()
    paths = files("algo-1", tmp_path / "2", Path("/opt/ml"), checkpoints=kept(tmp_path))
    assert written(paths.checkpoint_config)["LocalPath"] == "/opt/ml/checkpoints"
    assert paths.checkpoints.is_dir()


def test_the_service_sets_name_arn_and_region():
    assert service_variables(job()) == {
        "TRAINING_JOB_NAME": "job",
        "TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:000000000000:training-job/job",
        "AWS_REGION": "us-east-1",
    }


def test_a_processing_job_has_its_own_layout(tmp_path):
    described = {"ProcessingJobName": "job"}
    outputs = {"chart": PurePosixPath("processing/chart")}
    paths = files(
        "algo-2", tmp_path, Path("/opt/ml"), groups=plain(2), api=PROCESSING, description=described, outputs=outputs
    )
    assert written(tmp_path / "config" / "resourceconfig.json") == {
        "current_host": "algo-2",
        "hosts": ["algo-1", "algo-2"],
    }
    assert written(tmp_path / "config" / "processingjobconfig.json") == described
    assert paths.model == tmp_path / "processing" / "output" / "result"
    assert (tmp_path / "processing" / "chart").is_dir()
    assert not (tmp_path / "input").exists()

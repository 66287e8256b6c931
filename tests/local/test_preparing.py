"""The folders, files, variables and links that the instances of a job find."""

import json
from pathlib import Path, PurePosixPath

import pytest

from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest
from raysm.local import channels
from raysm.local.checkpoints import FolderStore
from raysm.local.instances.process import ProcessSite
from raysm.local.job_spec import Channel, Checkpoints, JobSpec, number_hosts
from raysm.local.preparing import Preparation, write_files
from raysm.local.scenario import Capacity, Container, Scenario


@pytest.fixture
def site():
    with ProcessSite() as site:
        yield site


def prepared(site, root, *, count=2, **fields):
    spec = JobSpec(name="j", groups=number_hosts(("g", "local", count)), **{"command": ("true",), **fields})
    return Preparation(
        spec=spec,
        root=root,
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


def test_a_scenario_that_processes_cannot_play_is_refused_by_its_switch(site):
    site.check(Scenario(capacity=Capacity(insufficient=1.0)))
    with pytest.raises(InvalidRequest, match="asks for container.user=7.*use kind 'namespace'"):
        site.check(Scenario(container=Container(user=7)))


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

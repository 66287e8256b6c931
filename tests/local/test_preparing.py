"""The folders, files, variables and links that the instances of a job find."""

import json
from pathlib import Path, PurePosixPath

import pytest

from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest
from raysm.local.instances.process import ProcessSite
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.preparing import write_files
from raysm.local.scenario import Capacity, Container, Scenario


@pytest.fixture
def site():
    with ProcessSite() as site:
        yield site


def test_a_scenario_that_processes_cannot_play_is_refused_by_its_switch(site):
    site.check(Scenario(capacity=Capacity(insufficient=1.0)))
    with pytest.raises(InvalidRequest, match="asks for container.user=7.*use kind 'namespace'"):
        site.check(Scenario(container=Container(user=7)))


def plain(count=1):
    return number_hosts(("homogeneousCluster", "ml.m5.large", count))


def job(**fields):
    return JobSpec(**{"name": "job", "groups": plain(), "command": ("true",), **fields})


def files(host, base, inside, **fields):
    return write_files(job(**fields), host, base, inside)


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

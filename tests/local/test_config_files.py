"""The files of an instance are those that SageMaker writes."""

import json
from pathlib import Path, PurePosixPath

import pytest

from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest
from raysm.local.checkpoints import FolderStore
from raysm.local.config_files import JobFiles
from raysm.local.job_spec import Channel, Checkpoints, JobSpec, number_hosts

GROUPS = number_hosts(("work", "ml.c5.xlarge", 2), ("head", "ml.m5.large", 1))


def plain(count=1):
    return number_hosts(("homogeneousCluster", "ml.m5.large", count))


def files(**fields):
    return JobFiles(spec=JobSpec(**{"name": "job", "groups": plain(), "command": ("true",), **fields}))


def kept(folder):
    return Checkpoints(store=FolderStore(folder), uri="s3://b/checkpoints")


def written(path):
    return json.loads(path.read_text())


def test_a_plain_job_has_one_group_and_its_hosts_stand_in_lexicographic_order(tmp_path):
    config = written(files(groups=plain(11)).write("algo-2", tmp_path, Path("/opt/ml")).resource_config)
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
    config = written(files(groups=GROUPS).write("algo-3", tmp_path, tmp_path).resource_config)
    assert config["current_group_name"] == "head"
    assert config["current_instance_type"] == "ml.m5.large"
    assert [group["hosts"] for group in config["instance_groups"]] == [["algo-1", "algo-2"], ["algo-3"]]


def test_the_head_is_the_first_host_unless_it_is_named():
    assert JobSpec(name="x", groups=plain(3), command=()).first == "algo-1"
    assert JobSpec(name="x", groups=GROUPS, command=(), head="algo-3").first == "algo-3"
    assert [group.hosts for group in plain(3)] == [("algo-1", "algo-2", "algo-3")]


def test_the_channels_that_a_host_gets_are_listed(tmp_path):
    channels = (
        Channel(name="a", source=tmp_path, content_type="text/csv"),
        Channel(name="b", source=tmp_path, distribution="ShardedByS3Key"),
        Channel(name="c", source=tmp_path, groups=("elsewhere",)),
    )
    paths = files(channels=channels).write("algo-1", tmp_path, tmp_path)
    config = written(paths.input_data_config)
    common = {"TrainingInputMode": "File", "RecordWrapperType": "None"}
    assert config == {
        "a": {"S3DistributionType": "FullyReplicated", "ContentType": "text/csv", **common},
        "b": {"S3DistributionType": "ShardedByS3Key", **common},
    }
    assert paths.channel("b").is_dir()


def test_hyperparameters_are_written_as_they_are_and_none_is_an_empty_object(tmp_path):
    given = {"quote": "it's", "list": "[1]"}
    paths = files(hyperparameters=given).write("algo-1", tmp_path / "1", tmp_path)
    assert written(paths.hyperparameters) == given
    assert written(files().write("algo-1", tmp_path / "2", tmp_path).hyperparameters) == {}


def test_only_a_job_with_checkpoints_has_their_folder_and_config(tmp_path):
    without = files().write("algo-1", tmp_path / "1", Path("/opt/ml"))
    assert not without.checkpoints.exists()
    assert not without.checkpoint_config.exists()
    paths = files(checkpoints=kept(tmp_path)).write("algo-1", tmp_path / "2", Path("/opt/ml"))
    assert written(paths.checkpoint_config)["LocalPath"] == "/opt/ml/checkpoints"
    assert paths.checkpoints.is_dir()


def test_the_folders_for_results_are_there_before_the_job_starts(tmp_path):
    paths = files().write("algo-1", tmp_path, tmp_path)
    assert paths.model.is_dir()
    assert paths.output_data.is_dir()
    assert not paths.failure.exists()


def test_the_service_sets_name_arn_and_region():
    assert files().variables() == {
        "TRAINING_JOB_NAME": "job",
        "TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:000000000000:training-job/job",
        "AWS_REGION": "us-east-1",
    }


def test_a_processing_job_has_its_own_layout(tmp_path):
    described = {"ProcessingJobName": "job"}
    outputs = {"chart": PurePosixPath("processing/chart")}
    paths = files(groups=plain(2), api=PROCESSING, description=described, outputs=outputs).write(
        "algo-2", tmp_path, Path("/opt/ml")
    )
    assert written(tmp_path / "config" / "resourceconfig.json") == {
        "current_host": "algo-2",
        "hosts": ["algo-1", "algo-2"],
    }
    assert written(tmp_path / "config" / "processingjobconfig.json") == described
    assert paths.model == tmp_path / "processing" / "output" / "result"
    assert (tmp_path / "processing" / "chart").is_dir()
    assert not (tmp_path / "input").exists()


@pytest.mark.parametrize("fields", [{"groups": GROUPS}, {"checkpoints": kept(Path("/x"))}])
def test_what_a_processing_job_cannot_have_is_refused(fields):
    with pytest.raises(InvalidRequest, match="use training"):
        files(api=PROCESSING, **fields)

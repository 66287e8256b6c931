"""The files of an instance are those that SageMaker writes."""

import json
from pathlib import Path

import pytest

from raysm.errors import InvalidRequest
from raysm.local.config_files import JobFiles, groups_of, head_of
from raysm.request import Cluster, Input, InstanceGroup, JobRequest, Script

GROUPS = Cluster(
    groups=(InstanceGroup("work", "ml.c5.xlarge", 2), InstanceGroup("head", "ml.m5.large", 1)), head="head"
)


def request(**fields):
    return JobRequest(**{"name": "job", "workload": Script("x.py"), **fields})


def written(path):
    return json.loads(path.read_text())


def test_a_plain_job_has_one_group_and_its_hosts_stand_in_lexicographic_order(tmp_path):
    files = JobFiles(request=request(cluster=Cluster("ml.m5.large", count=11)))
    config = written(files.write("algo-2", tmp_path, Path("/opt/ml")).resource_config)
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


def test_hosts_are_numbered_through_the_groups_and_the_head_is_the_first_of_its_group(tmp_path):
    config = written(JobFiles(request=request(cluster=GROUPS)).write("algo-3", tmp_path, tmp_path).resource_config)
    assert config["current_group_name"] == "head"
    assert config["current_instance_type"] == "ml.m5.large"
    assert [group["hosts"] for group in config["instance_groups"]] == [["algo-1", "algo-2"], ["algo-3"]]
    assert head_of(GROUPS) == "algo-3"


def test_without_a_named_group_the_head_is_the_first_host():
    assert head_of(Cluster(count=3)) == "algo-1"
    assert [group.hosts for group in groups_of(Cluster(count=3))] == [("algo-1", "algo-2", "algo-3")]


def test_channels_are_listed_with_the_payload_among_them(tmp_path):
    inputs = {"a": Input("/a"), "b": Input("/b", distribution="ShardedByS3Key")}
    paths = JobFiles(request=request(inputs=inputs)).write("algo-1", tmp_path, tmp_path)
    config = written(paths.input_data_config)
    assert {name: channel["S3DistributionType"] for name, channel in config.items()} == {
        "a": "FullyReplicated",
        "b": "ShardedByS3Key",
        "raysm": "FullyReplicated",
    }
    assert {channel["TrainingInputMode"] for channel in config.values()} == {"File"}
    assert paths.channel("b").is_dir()


def test_hyperparameters_are_written_as_they_are_and_none_is_an_empty_object(tmp_path):
    given = {"quote": "it's", "list": "[1]"}
    paths = JobFiles(request=request(), hyperparameters=given).write("algo-1", tmp_path / "1", tmp_path)
    assert written(paths.hyperparameters) == given
    assert written(JobFiles(request=request()).write("algo-1", tmp_path / "2", tmp_path).hyperparameters) == {}


def test_only_a_job_with_checkpoints_has_their_folder_and_config(tmp_path):
    without = JobFiles(request=request()).write("algo-1", tmp_path / "1", Path("/opt/ml"))
    assert not without.checkpoints.exists()
    assert not without.checkpoint_config.exists()
    paths = JobFiles(request=request(), checkpoints=True).write("algo-1", tmp_path / "2", Path("/opt/ml"))
    assert written(paths.checkpoint_config)["LocalPath"] == "/opt/ml/checkpoints"
    assert paths.checkpoints.is_dir()


def test_the_folders_for_results_are_there_before_the_job_starts(tmp_path):
    paths = JobFiles(request=request()).write("algo-1", tmp_path, tmp_path)
    assert paths.model.is_dir()
    assert paths.output_data.is_dir()
    assert not paths.failure.exists()


def test_the_service_sets_name_arn_and_region():
    assert JobFiles(request=request()).variables() == {
        "TRAINING_JOB_NAME": "job",
        "TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:000000000000:training-job/job",
        "AWS_REGION": "us-east-1",
    }


def test_a_processing_job_has_its_own_layout(tmp_path):
    files = JobFiles(request=request(cluster=Cluster(count=2), inputs={"a": Input("/a")}), processing=True)
    paths = files.write("algo-2", tmp_path, Path("/opt/ml"))
    assert written(tmp_path / "config" / "resourceconfig.json") == {
        "current_host": "algo-2",
        "hosts": ["algo-1", "algo-2"],
    }
    job = written(tmp_path / "config" / "processingjobconfig.json")
    assert job["ProcessingJobName"] == "job"
    assert {item["InputName"]: item["S3Input"]["LocalPath"] for item in job["ProcessingInputs"]} == {
        "a": "/opt/ml/processing/input/a",
        "raysm": "/opt/ml/processing/input/raysm",
    }
    assert [item["S3Output"]["LocalPath"] for item in job["ProcessingOutputConfig"]["Outputs"]] == [
        "/opt/ml/processing/output/result",
        "/opt/ml/processing/output/data",
    ]
    assert paths.model == tmp_path / "processing" / "output" / "result"
    assert not (tmp_path / "input").exists()


@pytest.mark.parametrize("fields", [{"request": request(cluster=GROUPS)}, {"request": request(), "checkpoints": True}])
def test_what_a_processing_job_cannot_have_is_refused(fields):
    with pytest.raises(InvalidRequest, match="use training"):
        JobFiles(processing=True, **fields)

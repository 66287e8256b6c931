"""The calls of a request, whole and by their parameters."""

import pytest

from raysm.core.client.plan import plan
from raysm.core.protocol.names import LOCAL_BUCKET
from raysm.core.request import (
    Alternative,
    Cluster,
    Input,
    InstanceGroup,
    JobRequest,
    Limits,
    Local,
    MetricDefinition,
    Security,
)
from raysm.core.request.targets import LOCAL_ROLE
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests.support.sagemaker import IMAGE, aws, places_of

pytestmark = pytest.mark.smoke

PLACES = places_of(aws())


def request(**fields):
    fields = {
        "name": "job",
        "workload": Script("train.py"),
        "cluster": Cluster("ml.m5.large"),
    } | fields
    return JobRequest(**fields)


def planned(target=None, **fields):
    return plan(request(**fields), target=target or aws(), places=PLACES).request


def local_plan(tmp_path, target=None, **fields):
    target = target or Local(home=str(tmp_path))
    return plan(request(**fields), target=target, places=places_of(target, LOCAL_BUCKET)).request


def test_several_instances_on_aws_share_a_default_storage_for_ray_train(tmp_path):
    several = {"cluster": Cluster("ml.m5.large", count=2)}
    storage = {"RAYSM_TRAIN_STORAGE": "s3://b/raysm/default/job/ray_results"}
    assert planned(**several)["Environment"] == storage
    assert planned(**several, kind="processing")["Environment"] == storage
    assert planned(**several, environment={"RAYSM_TRAIN_STORAGE": "s3://mine"})["Environment"] == {
        "RAYSM_TRAIN_STORAGE": "s3://mine"
    }
    assert "Environment" not in planned()
    assert "Environment" not in planned(**several, security=Security(isolation=True))
    assert "Environment" not in local_plan(tmp_path, **several)


def test_the_cpus_of_emulated_instances_travel_as_a_variable(tmp_path):
    assert local_plan(tmp_path, Local(home=str(tmp_path), cpus=4))["Environment"] == {
        "RAYSM_CPUS": "4"
    }


def test_a_plain_training_job_is_this_very_call():
    assert planned() == {
        "TrainingJobName": "job",
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/raysm/start.py"],
            "EnableSageMakerMetricsTimeSeries": False,
        },
        "RoleArn": "arn:aws:iam::123456789012:role/jobs",
        "InputDataConfig": [
            {
                "ChannelName": "raysm",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://b/raysm/payloads/default/job/",
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
                "InputMode": "File",
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://b/raysm/default", "CompressionType": "NONE"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "CheckpointConfig": {"S3Uri": "s3://b/raysm/default/job/state/job"},
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        "RemoteDebugConfig": {"EnableRemoteDebug": False},
        "Tags": [],
    }


def test_every_option_of_training_reaches_the_call():
    call = planned(
        cluster=Cluster(
            "ml.g5.xlarge",
            count=3,
            volume_gb=100,
            training_plan="arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p",
        ),
        inputs={
            "train": Input(
                "s3://b/x/", distribution="ShardedByS3Key", mode="FastFile", content_type="text/csv"
            )
        },
        limits=Limits(max_runtime_s=60, retry_attempts=3),
        security=Security(
            subnets=("subnet-1",),
            security_groups=("sg-1",),
            volume_kms_key="kv",
            output_kms_key="ko",
            encrypt_traffic=True,
        ),
        environment={"A": "1"},
        hyperparameters={"lr": "0.1"},
        metrics=(MetricDefinition("loss", "loss=(.*)"),),
        checkpoint_uri="s3://b/ck",
        output_uri="s3://b/out/",
    )
    assert call["ResourceConfig"] == {
        "InstanceType": "ml.g5.xlarge",
        "InstanceCount": 3,
        "VolumeSizeInGB": 100,
        "VolumeKmsKeyId": "kv",
        "TrainingPlanArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p",
    }
    train = call["InputDataConfig"][1]
    assert (train["ContentType"], train["InputMode"]) == ("text/csv", "FastFile")
    assert train["DataSource"]["S3DataSource"]["S3DataDistributionType"] == "ShardedByS3Key"
    assert call["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    assert call["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    assert call["OutputDataConfig"] == {
        "S3OutputPath": "s3://b/out",
        "CompressionType": "NONE",
        "KmsKeyId": "ko",
    }
    assert call["EnableInterContainerTrafficEncryption"] is True
    assert call["Environment"]["A"] == "1"
    assert call["HyperParameters"] == {"lr": "0.1"}
    assert call["AlgorithmSpecification"]["MetricDefinitions"] == [
        {"Name": "loss", "Regex": "loss=(.*)"}
    ]
    assert call["CheckpointConfig"] == {"S3Uri": "s3://b/ck"}


def test_each_preferred_type_has_its_own_count_and_training_plan_if_one_differs():
    plan_arn = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p"
    larger = Alternative("ml.p5.48xlarge", 1, plan_arn)
    chosen = Cluster("ml.p4d.24xlarge", count=2, alternatives=(larger, "ml.p3.16xlarge"))
    resources = planned(cluster=chosen)["ResourceConfig"]
    assert resources["InstancePreferences"] == [
        {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
        {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "TrainingPlanArns": [plan_arn]},
        {"InstanceType": "ml.p3.16xlarge", "InstanceCount": 2},
    ]
    assert not {"InstanceCount", "InstanceType", "TrainingPlanArn"} & resources.keys()


def test_the_training_plan_of_a_cluster_with_alternatives_is_that_of_its_first_type():
    plan_arn = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p"
    chosen = Cluster("ml.p5.48xlarge", training_plan=plan_arn, alternatives=("ml.p4d.24xlarge",))
    resources = planned(cluster=chosen)["ResourceConfig"]
    assert resources["InstancePreferences"] == [
        {"InstanceType": "ml.p5.48xlarge", "TrainingPlanArns": [plan_arn]},
        {"InstanceType": "ml.p4d.24xlarge"},
    ]
    assert resources["InstanceCount"] == 1
    assert "TrainingPlanArn" not in resources


def test_groups_replace_type_and_count_and_the_payload_goes_to_all_of_them():
    groups = (InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("work", "ml.c5.xlarge", 2))
    call = planned(
        cluster=Cluster(groups=groups), inputs={"x": Input("s3://b/x", groups=("work",))}
    )
    assert "InstanceType" not in call["ResourceConfig"]
    assert call["ResourceConfig"]["InstanceGroups"][1] == {
        "InstanceType": "ml.c5.xlarge",
        "InstanceCount": 2,
        "InstanceGroupName": "work",
    }
    sources = [channel["DataSource"]["S3DataSource"] for channel in call["InputDataConfig"]]
    assert [source["InstanceGroupNames"] for source in sources] == [["head", "work"], ["work"]]


def test_a_processing_job_has_its_own_layout():
    call = planned(
        kind="processing", cluster=Cluster("ml.m5.large", count=2), inputs={"x": Input("s3://b/x/")}
    )
    assert call["AppSpecification"]["ContainerEntrypoint"] == [
        "python3",
        "/opt/ml/processing/input/raysm/start.py",
    ]
    assert [item["S3Input"]["LocalPath"] for item in call["ProcessingInputs"]] == [
        "/opt/ml/processing/input/raysm",
        "/opt/ml/processing/input/x",
    ]
    assert [item["S3Output"]["S3Uri"] for item in call["ProcessingOutputConfig"]["Outputs"]] == [
        "s3://b/raysm/default/job/output/model",
        "s3://b/raysm/default/job/output/data",
    ]
    assert call["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 2


def test_aws_refuses_a_path_that_was_not_uploaded():
    with pytest.raises(InvalidRequest, match="'x'.*'/data/x'"):
        planned(inputs={"x": Input("/data/x")})


def test_on_this_machine_data_and_results_are_files_and_the_payload_is_not(tmp_path):
    call = local_plan(tmp_path, cluster=Cluster(count=2), inputs={"x": Input("file:///data/x")})
    uris = [channel["DataSource"]["S3DataSource"]["S3Uri"] for channel in call["InputDataConfig"]]
    assert uris == ["s3://raysm-local/raysm/payloads/default/job/", "file:///data/x"]
    assert call["OutputDataConfig"]["S3OutputPath"] == f"{tmp_path.as_uri()}/data/default"
    assert call["CheckpointConfig"]["S3Uri"] == f"{tmp_path.as_uri()}/data/default/job/state/job"
    assert call["RoleArn"] == LOCAL_ROLE
    assert call["ResourceConfig"]["InstanceType"] == "ml.m5.large"


@pytest.mark.parametrize("kind", ["process", "namespace"])
def test_the_image_says_what_plays_an_instance_on_this_machine(tmp_path, kind):
    call = local_plan(tmp_path, Local(instance_kind=kind))
    assert call["AlgorithmSpecification"]["TrainingImage"] == f"raysm/{kind}:latest"


def test_docker_needs_an_image_and_gets_it(tmp_path):
    call = local_plan(tmp_path, Local(instance_kind="docker", image="mine:1"))
    assert call["AlgorithmSpecification"]["TrainingImage"] == "mine:1"
    with pytest.raises(InvalidRequest, match="docker.*--image"):
        local_plan(tmp_path, Local(instance_kind="docker"))


def test_only_on_spot_capacity_the_waiting_has_a_limit():
    def condition(**fields):
        return planned(limits=Limits(max_runtime_s=100, **fields))["StoppingCondition"]

    assert condition() == {"MaxRuntimeInSeconds": 100}
    assert condition(spot=True) == {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 200}
    assert condition(spot=True, max_wait_s=150) == {
        "MaxRuntimeInSeconds": 100,
        "MaxWaitTimeInSeconds": 150,
    }


def test_a_job_can_be_looked_into_only_where_the_user_asks_for_it_and_the_call_says_no_elsewhere():
    def debug(**fields):
        return planned(security=Security(**fields))["RemoteDebugConfig"]["EnableRemoteDebug"]

    # Said, not left out: policies that allow a job only where the key is false compare it with what
    # the call says.
    assert (debug(), debug(isolation=True), debug(remote_debug=True)) == (False, False, True)


def test_the_arn_of_an_mlflow_is_told_to_the_service_and_other_places_are_not():
    arn = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"
    assert planned(tracking=arn, project="digits")["MlflowConfig"] == {
        "MlflowResourceArn": arn,
        "MlflowExperimentName": "digits",
        "MlflowRunName": "job",
    }
    for tracking in (None, "sqlite:///mlflow.db", "http://mlflow.example:5000"):
        assert "MlflowConfig" not in planned(tracking=tracking)


def test_a_manifest_is_told_as_one():
    inputs = {"x": Input("s3://b/m", manifest=True), "y": Input("s3://b/y")}
    _, *channels = planned(inputs=inputs)["InputDataConfig"]
    assert [item["DataSource"]["S3DataSource"]["S3DataType"] for item in channels] == [
        "ManifestFile",
        "S3Prefix",
    ]
    _, *channels = planned(kind="processing", inputs=inputs)["ProcessingInputs"]
    assert [item["S3Input"]["S3DataType"] for item in channels] == ["ManifestFile", "S3Prefix"]


def test_what_processing_lacks_is_refused():
    with pytest.raises(InvalidRequest, match="spot"):
        planned(kind="processing", limits=Limits(spot=True))


def test_several_isolated_instances_are_not_documented_to_reach_each_other_and_that_is_said(caplog):
    planned(kind="processing", security=Security(isolation=True))
    planned(kind="processing", cluster=Cluster("ml.m5.large", count=3))
    assert caplog.records == []
    planned(
        kind="processing",
        cluster=Cluster("ml.m5.large", count=3),
        security=Security(isolation=True),
    )
    assert "the 3 instances" in caplog.text
    assert "kind='training'" in caplog.text


FILE_SYSTEM = "fsx://fs-0123456789abcdef0/ab12/images"
IN_NETWORK = Security(subnets=("subnet-1",), security_groups=("sg-1",))


def test_a_folder_of_a_file_system_is_mounted_read_only():
    call = planned(inputs={"train": Input(FILE_SYSTEM)}, security=IN_NETWORK)
    channels = {channel["ChannelName"]: channel for channel in call["InputDataConfig"]}
    assert channels["train"]["DataSource"] == {
        "FileSystemDataSource": {
            "FileSystemId": "fs-0123456789abcdef0",
            "FileSystemType": "FSxLustre",
            "DirectoryPath": "/ab12/images",
            "FileSystemAccessMode": "ro",
        }
    }


def test_a_file_system_on_aws_needs_the_network_in_which_it_is(tmp_path):
    inputs = {"train": Input(FILE_SYSTEM)}
    with pytest.raises(InvalidRequest, match="subnets"):
        planned(inputs=inputs)
    assert "VpcConfig" not in local_plan(tmp_path, inputs=inputs)


def test_a_processing_job_takes_no_file_system():
    with pytest.raises(InvalidRequest, match="kind='training'"):
        planned(inputs={"train": Input(FILE_SYSTEM)}, security=IN_NETWORK, kind="processing")

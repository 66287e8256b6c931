"""The parameters of CreateTrainingJob; tests/client/test_plan.py has whole calls."""

import pytest

from raysm.client.plan import plan
from raysm.request import Cluster, Input, JobRequest, Limits, Script, Security
from tests.support.sagemaker import aws, places_of


def parameters(state=None, **fields):
    fields = {"cluster": Cluster("ml.m5.large"), **fields}
    request = JobRequest(name="job", workload=Script("x.py"), **fields)
    return plan(request, target=aws(), places=places_of(aws()), state=state).request


def test_checkpoints_lie_where_the_user_says_else_where_an_earlier_run_left_them_else_in_a_folder_anew():
    def uri(**fields):
        return parameters(**fields)["CheckpointConfig"]["S3Uri"]

    assert uri(checkpoint_uri="s3://b/mine", state="s3://b/earlier") == "s3://b/mine"
    assert uri(state="s3://b/earlier") == "s3://b/earlier"
    assert uri() == "s3://b/raysm/default/job/state/job"


@pytest.mark.parametrize(
    ("limits", "condition"),
    [
        (Limits(max_runtime_s=100), {"MaxRuntimeInSeconds": 100}),
        (Limits(max_runtime_s=100, spot=True), {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 200}),
        (
            Limits(max_runtime_s=100, spot=True, max_wait_s=150),
            {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 150},
        ),
    ],
    ids=["on demand", "on spot capacity", "with a limit for the waiting"],
)
def test_only_on_spot_capacity_the_waiting_has_a_limit(limits, condition):
    assert parameters(limits=limits)["StoppingCondition"] == condition


def test_a_job_can_be_looked_into_only_where_the_user_asks_for_it_and_the_call_says_no_elsewhere():
    def debug(**fields):
        return parameters(security=Security(**fields))["RemoteDebugConfig"]["EnableRemoteDebug"]

    # Said, not left out: policies that allow a job only where the key is false compare it with what the call says.
    assert (debug(), debug(isolation=True), debug(remote_debug=True)) == (False, False, True)


def test_the_arn_of_an_mlflow_is_told_to_the_service_and_other_places_are_not():
    arn = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"
    assert parameters(tracking=arn, project="digits")["MlflowConfig"] == {
        "MlflowResourceArn": arn,
        "MlflowExperimentName": "digits",
        "MlflowRunName": "job",
    }
    for tracking in (None, "sqlite:///mlflow.db", "http://mlflow.example:5000"):
        assert "MlflowConfig" not in parameters(tracking=tracking)


def test_a_manifest_is_told_as_one():
    inputs = {"x": Input("s3://b/m", manifest=True), "y": Input("s3://b/y")}
    _, *channels = parameters(inputs=inputs)["InputDataConfig"]
    assert [item["DataSource"]["S3DataSource"]["S3DataType"] for item in channels] == ["ManifestFile", "S3Prefix"]

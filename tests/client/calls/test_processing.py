"""The parameters of CreateProcessingJob; tests/client/test_plan.py has whole calls."""

import pytest

from raysm.client.plan import outputs, plan
from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest, Limits, Script, Security
from tests.support.sagemaker import aws, places_of


def request(**fields):
    fields = {"cluster": Cluster("ml.m5.large"), **fields}
    return JobRequest(name="job", workload=Script("x.py"), kind="processing", **fields)


def parameters(**fields):
    return plan(request(**fields), target=aws(), places=places_of(aws()), tags={"a": "b"}).request


def test_a_manifest_is_told_as_one():
    inputs = {"x": Input("s3://b/m", manifest=True), "y": Input("s3://b/y")}
    _, listed, prefix = parameters(inputs=inputs)["ProcessingInputs"]
    assert (listed["S3Input"]["S3DataType"], prefix["S3Input"]["S3DataType"]) == ("ManifestFile", "S3Prefix")


def test_what_processing_lacks_is_refused():
    with pytest.raises(InvalidRequest, match="spot"):
        parameters(limits=Limits(spot=True))


def test_several_isolated_instances_are_not_documented_to_reach_each_other_and_that_is_said(caplog):
    parameters(security=Security(isolation=True))
    parameters(cluster=Cluster("ml.m5.large", count=3))
    assert caplog.records == []
    parameters(cluster=Cluster("ml.m5.large", count=3), security=Security(isolation=True))
    assert "the 3 instances" in caplog.text
    assert "kind='training'" in caplog.text


def test_a_job_of_others_that_leaves_nothing_has_no_outputs():
    assert outputs(PROCESSING, "job", {}) == ""

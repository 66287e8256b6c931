import dataclasses
import importlib.util

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from raysm.core.client.service import translated
from raysm.core.client.targets.connection import Bucket, connection_to
from raysm.core.client.targets.local import LocalConnection
from raysm.core.protocol.home import ServerRecord
from raysm.core.request import JobRequest, Local
from raysm.errors import MissingDependency, ServiceError
from raysm.features.training.request import TorchScript
from tests.support.sagemaker import SESSION, aws

GONE = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


def connection(tmp_path):
    return LocalConnection(Local(home=str(tmp_path)))


def test_a_job_whose_packages_this_python_lacks_is_refused_with_the_extra_that_brings_them(
    tmp_path, monkeypatch
):
    request = JobRequest(name="a", workload=TorchScript("train.py"))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name)
    )
    with pytest.raises(MissingDependency, match=r"'torch'.*'raysm\[train\]'"):
        connection(tmp_path).resolve(request, lambda: "us-east-1")
    # Packages that the request itself installs, or that a container image has, need not be here.
    connection(tmp_path).resolve(
        dataclasses.replace(request, requirements=("torch==2.9",)), lambda: "us-east-1"
    )
    LocalConnection(Local(home=str(tmp_path), instance_kind="docker")).resolve(
        request, lambda: "us-east-1"
    )


def test_each_region_has_its_bucket_and_its_folder(tmp_path):
    far = LocalConnection(Local(home=str(tmp_path), regions=("eu-west-1",)))
    assert far.region(None) == "eu-west-1"
    assert far.bucket(None, None) == Bucket(name="raysm-local-eu-west-1")
    assert far.data_root("s3://b/raysm") == (tmp_path / "data" / "@eu-west-1").as_uri()


def test_only_a_server_that_is_gone_is_started_again(tmp_path):
    assert connection(tmp_path).reconnect(GONE)
    assert not connection(tmp_path).reconnect(ReadTimeoutError(endpoint_url="http://127.0.0.1:1"))


def test_a_server_that_was_told_to_end_is_not_started_again_for_who_follows_a_job(tmp_path):
    with pytest.raises(ServiceError, match="was ended.*raysm jobs") as caught:
        connection(tmp_path).reconnect(GONE, is_followed=True)
    assert not caught.value.is_transient


def test_one_that_was_killed_is_started_again_to_say_what_became_of_the_job(tmp_path):
    ServerRecord(pid=1, port=1, started_s=0.0, version="1").write(tmp_path)
    assert connection(tmp_path).reconnect(GONE, is_followed=True)


class NoRegion:
    class meta:  # noqa: N801 - boto3's name
        region_name = None


def test_without_one_it_is_that_of_the_configuration():
    client = SESSION.client("sagemaker", region_name="eu-north-1")
    assert connection_to(aws(region=None)).region(lambda name: client) == "eu-north-1"


def test_no_region_at_all_is_an_error_that_says_how_to_set_one():
    with pytest.raises(ServiceError, match="aws configure set region"):
        connection_to(aws(region=None)).region(lambda name: NoRegion())


def test_who_has_another_endpoint_in_the_shell_is_told_once_that_it_is_not_aws(monkeypatch, caplog):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4999")
    connection = connection_to(aws())
    for name in ("sts", "sagemaker"):
        connection.make_client(name)
    assert (
        caplog.text.count("on AWS goes to http://127.0.0.1:4999, which is not an address of AWS")
        == 1
    )


@pytest.mark.parametrize("region", ["eu-west-1", "cn-north-1", "us-gov-west-1"])
def test_the_endpoints_of_all_regions_are_aws_own(region, caplog):
    connection_to(aws(region=region)).make_client("sts")
    assert caplog.records == []


def test_a_quota_of_a_scenario_is_raised_in_the_scenario():
    refused = ClientError(
        {"Error": {"Code": "ResourceLimitExceeded", "Message": "too many"}}, "CreateTrainingJob"
    )
    with (
        pytest.raises(ServiceError) as caught,
        translated("create_training_job", LocalConnection.remedies),
    ):
        raise refused
    assert "market.quotas" in caught.value.remedy
    with pytest.raises(ServiceError) as caught, translated("create_training_job"):
        raise refused
    assert "Service Quotas" in caught.value.remedy

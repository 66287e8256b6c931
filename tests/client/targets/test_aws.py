import pytest
from botocore.stub import Stubber

from raysm.client.targets.connection import connection_to
from raysm.errors import ServiceError
from tests.support.sagemaker import SESSION, aws


class NoRegion:
    class meta:  # noqa: N801 - boto3's name
        region_name = None


def test_without_one_it_is_that_of_the_configuration():
    client = SESSION.client("sagemaker", region_name="eu-north-1")
    with Stubber(client):
        assert connection_to(aws(region=None)).region(lambda name: client) == "eu-north-1"


def test_no_region_at_all_is_an_error_that_says_how_to_set_one():
    with pytest.raises(ServiceError, match="aws configure set region"):
        connection_to(aws(region=None)).region(lambda name: NoRegion())


def test_who_has_another_endpoint_in_the_shell_is_told_once_that_it_is_not_aws(monkeypatch, caplog):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4999")
    connection = connection_to(aws())
    for name in ("sts", "sagemaker"):
        connection.make_client(name)
    assert caplog.text.count("on AWS goes to http://127.0.0.1:4999, which is not an address of AWS") == 1


@pytest.mark.parametrize("region", ["eu-west-1", "cn-north-1", "us-gov-west-1"])
def test_the_endpoints_of_all_regions_are_aws_own(region, caplog):
    connection_to(aws(region=region)).make_client("sts")
    assert caplog.records == []

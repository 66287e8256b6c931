"""Every call is told of with what was asked and answered, those too that boto3 makes by itself."""

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from raysm.client.exchange import observe
from raysm.client.service import Service
from raysm.client.storage import SMALL, Storage
from raysm.errors import ServiceError
from raysm.request import AWS
from tests.support.sagemaker import KEYS, REGION, aws


@pytest.fixture
def s3():
    with mock_aws():
        client = boto3.Session(**KEYS).client("s3", region_name=REGION)
        client.create_bucket(Bucket="my-bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client


def test_what_was_asked_and_answered_is_told(s3):
    exchanges = []
    service = Service(aws(), clients=lambda name: s3, observer=exchanges.append)
    service.call("s3", "put_object", Bucket="my-bucket", Key="k", Body=b"x")
    (exchange,) = exchanges
    assert (exchange.call, exchange.status, exchange.obstacle) == ("s3:PutObject", 200, "")
    assert exchange.parameters["Key"] == "k"
    assert "ETag" in exchange.answer


def test_a_refusal_is_an_answer(s3):
    exchanges = []
    service = Service(aws(), clients=lambda name: s3, observer=exchanges.append)
    with pytest.raises(ServiceError):
        service.call("s3", "head_bucket", Bucket="other")
    assert [(exchange.call, exchange.status) for exchange in exchanges] == [("s3:HeadBucket", 404)]


def test_the_parts_of_a_large_object_are_told_each(s3, tmp_path):
    exchanges = []
    service = Service(aws(), clients=lambda name: s3, observer=exchanges.append)
    (tmp_path / "large").write_bytes(b"x" * (SMALL + 1))
    Storage(service).upload(tmp_path / "large", "s3://my-bucket/large")
    calls = [exchange.call for exchange in exchanges]
    assert {"s3:CreateMultipartUpload", "s3:UploadPart", "s3:CompleteMultipartUpload"} == set(calls)
    assert calls.count("s3:UploadPart") == 2


def test_a_client_is_observed_once_however_often_it_is_asked_for(s3):
    exchanges = []
    for _ in range(2):
        observe(s3, exchanges.append)
    s3.head_bucket(Bucket="my-bucket")
    assert len(exchanges) == 1


def test_a_call_without_an_answer_says_why():
    exchanges = []
    target = AWS(role="arn:aws:iam::123456789012:role/x", region=REGION)
    client = boto3.Session(**KEYS).client("sts", region_name=REGION, endpoint_url="http://127.0.0.1:9")
    with pytest.raises(ServiceError) as failure:
        Service(target, clients=lambda name: client, observer=exchanges.append).call("sts", "get_caller_identity")
    assert isinstance(failure.value.__cause__, EndpointConnectionError)
    (exchange,) = exchanges
    assert (exchange.status, exchange.answer) == (0, {})
    assert "127.0.0.1:9" in exchange.obstacle

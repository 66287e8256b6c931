"""The user's AWS settings, wrong ones too, change nothing for the embedded SageMaker and its clients."""

import os

import pytest

from raysm.core.client.service import Service
from raysm.core.request import Local
from raysm.local.server.moto_services import MotoServices
from tests.support.homes import serving
from tests.support.sagemaker_server import training_request
from tests.support.waiting import until

BROKEN = "[broken\nx="
ODD = "[default]\nretry_mode = rubbish\nmax_attempts = many\nregion = nowhere\ns3 =\n  addressing_style = rubbish\n"

SETTINGS = {
    "profile": {"AWS_PROFILE": "nope"},
    "default profile": {"AWS_DEFAULT_PROFILE": "nope"},
    "retry mode": {"AWS_RETRY_MODE": "rubbish"},
    "attempts": {"AWS_MAX_ATTEMPTS": "many"},
    "broken file": {"AWS_CONFIG_FILE": "broken"},
    "wrong values in the file": {"AWS_CONFIG_FILE": "odd"},
    "broken credentials": {"AWS_SHARED_CREDENTIALS_FILE": "broken"},
    "certificates": {"AWS_CA_BUNDLE": "/nonexistent", "REQUESTS_CA_BUNDLE": "/nonexistent"},
    "defaults mode": {"AWS_DEFAULTS_MODE": "rubbish"},
    "proxy": {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "socks5://127.0.0.1:9",
        "NO_PROXY": "",
    },
    "endpoint": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ENDPOINT_URL_S3": "no url"},
    "region": {"AWS_DEFAULT_REGION": "nowhere", "AWS_REGION": "nowhere"},
    "endpoints' variants": {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
    "checksums": {
        "AWS_REQUEST_CHECKSUM_CALCULATION": "rubbish",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "rubbish",
    },
    "compression": {"AWS_REQUEST_MIN_COMPRESSION_SIZE_BYTES": "rubbish"},
    "metadata service": {
        "AWS_METADATA_SERVICE_TIMEOUT": "rubbish",
        "AWS_ACCOUNT_ID_ENDPOINT_MODE": "rubbish",
    },
    "S3": {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "rubbish", "AWS_S3_USE_ARN_REGION": "rubbish"},
    "signatures": {
        "AWS_AUTH_SCHEME_PREFERENCE": "rubbish",
        "AWS_STS_REGIONAL_ENDPOINTS": "rubbish",
    },
    "data": {"AWS_DATA_PATH": "/nonexistent", "AWS_SDK_UA_APP_ID": "x" * 100},
}


@pytest.fixture
def have(monkeypatch, tmp_path):
    """Return a function that gives this process settings, whose files are there."""
    files = {"broken": BROKEN, "odd": ODD}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def set_variables(settings):
        for name, value in settings.items():
            monkeypatch.setenv(name, str(tmp_path / value) if value in files else value)

    return set_variables


@pytest.mark.parametrize("name", SETTINGS)
def test_the_servers_own_clients_read_no_setting(name, have):
    have(SETTINGS[name])
    client = MotoServices().client("s3")
    client.create_bucket(Bucket="bucket")
    client.put_object(Bucket="bucket", Key="key", Body=b"content")
    assert client.get_object(Bucket="bucket", Key="key")["Body"].read() == b"content"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("settings") / "home") as home:
        service = Service(Local(home=str(home)))
        service.call("s3", "create_bucket", Bucket="bucket")
        yield service


@pytest.mark.parametrize("name", SETTINGS)
def test_the_servers_clients_read_no_setting(name, have, service):
    have(SETTINGS[name])
    fresh = Service(service.target)
    fresh.call("s3", "put_object", Bucket="bucket", Key=name, Body=b"content")
    assert fresh.call("s3", "get_object", Bucket="bucket", Key=name)["Body"].read() == b"content"
    assert fresh.account == "123456789012"


def test_a_job_runs_under_a_server_that_was_started_with_wrong_settings(have, tmp_path):
    for settings in SETTINGS.values():
        have(settings)
    assert os.environ["AWS_PROFILE"] == "nope"
    with serving(tmp_path / "home") as home:
        service = Service(Local(home=str(home)))
        request = training_request("job", "echo hello > /opt/ml/model/x || exit 0")
        service.call("s3", "create_bucket", Bucket="test-bucket")
        service.call("sagemaker", "create_training_job", **request)
        describe = {"TrainingJobName": "job"}
        until(
            lambda: (
                service.call("sagemaker", "describe_training_job", **describe)["TrainingJobStatus"]
                != "InProgress"
            )
        )
        answer = service.call("sagemaker", "describe_training_job", **describe)
        assert answer["TrainingJobStatus"] == "Completed", answer["FailureReason"]

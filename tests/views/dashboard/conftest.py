"""A head that answers, and requests to a proxy as any program may make them."""

import http.client

import pytest

from raysm.client.submit import submit
from raysm.request import Script
from tests.support.client_jobs import M5
from tests.support.dashboard_head import serving_head
from tests.support.sagemaker import fake_aws


@pytest.fixture
def remote():
    """AWS, as far as a dashboard can tell."""
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def job(remote, tmp_path):
    """A job that runs until the test ends it."""
    (tmp_path / "train.py").touch()
    return submit(Script(str(tmp_path / "train.py")), cluster=M5, on=remote.service)


@pytest.fixture
def head():
    with serving_head() as one:
        yield one


@pytest.fixture
def ask():
    """Return status, headers and body of one request to ``127.0.0.1:port``."""

    def send(port, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(
                method, path, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    return send

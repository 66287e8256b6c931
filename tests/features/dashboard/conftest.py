"""A head that answers, and requests to a proxy as any program may make them."""

import http.client

import pytest

from tests.support.dashboard_head import serving_head


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
                method,
                path,
                body=body,
                headers={name.replace("_", "-"): v for name, v in headers.items()},
            )
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    return send

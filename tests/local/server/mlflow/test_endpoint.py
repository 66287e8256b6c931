"""What passes to the MLflow behind a tracking server, and what does not; a program that echoes stands in for MLflow."""

import http.client
import json
import socket
import threading

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from raysm.errors import RaysmError
from raysm.local.server.api_error import ApiError
from raysm.local.server.mlflow.endpoint import ARN, THREAD, Endpoint, serving

TEAM = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"


class Echo:
    """Answers with what it was asked."""

    def __init__(self):
        self.server = make_server("127.0.0.1", 0, self, threaded=True)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __call__(self, environ, start_response):
        request = Request(environ)
        told = {
            "method": request.method,
            "path": environ["RAW_URI"],
            "headers": {name.lower(): value for name, value in request.headers},
            "body": request.get_data(as_text=True),
        }
        headers = {"Set-Cookie": "a=b", "X-Own": "1"}
        return Response(json.dumps(told), status=201, headers=headers)(environ, start_response)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def echo():
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def port(echo):
    def upstream(arn):
        if arn.endswith("down"):
            raise RaysmError("MLflow did not start")
        if arn != TEAM:
            raise ApiError("ResourceNotFound", f"there is no tracking server {arn}")
        return echo

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with serving(Endpoint(upstream), listener):
        yield port


def signed(method, path, body=b"", arn=TEAM, *, service="sagemaker-mlflow", region="eu-west-1"):
    """Return the headers of a request as AWS's plugin signs it."""
    request = AWSRequest(method, f"http://127.0.0.1{path}", headers={ARN: arn} if arn else {}, data=body)
    SigV4Auth(Credentials("any", "keys"), service, region).add_auth(request)
    return dict(request.headers)


def asked(port, method, path, headers, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())
    finally:
        connection.close()


def test_a_signed_request_passes_as_it_is_without_what_tells_who_asks(port):
    path, body = "/api/2.0/mlflow/runs/search?filter=a%20%3D%201", b'{"max_results": 5}'
    status, headers, told = asked(port, "POST", path, {**signed("POST", path, body), "Cookie": "c"}, body)
    assert (status, headers["X-Own"], "Set-Cookie" in headers) == (201, "1", False)
    assert (told["method"], told["path"], told["body"]) == ("POST", path, body.decode())
    assert not {"authorization", "cookie", ARN} & set(told["headers"])


def test_a_request_without_a_body_passes_too(port):
    status, _, told = asked(port, "GET", "/health", signed("GET", "/health"))
    assert (status, told["method"], told["body"]) == (201, "GET", "")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({ARN: TEAM}, "has to be signed"),
        ({ARN: TEAM, "Authorization": "Bearer x"}, "has to be signed"),
        (signed("GET", "/health", service="s3"), "has to be signed"),
        (signed("GET", "/health", region="us-east-1"), f"not signed for {TEAM}"),
        (signed("GET", "/health", arn=None), "not signed for a tracking server"),
        ({**signed("GET", "/health", arn=None), ARN: TEAM}, f"not signed for {TEAM}"),
    ],
    ids=["unsigned", "bearer", "service", "region", "no arn", "arn beside the signature"],
)
def test_what_is_not_signed_for_the_tracking_server_does_not_pass(port, headers, reason):
    status, _, told = asked(port, "GET", "/health", headers)
    assert (status, reason in told["message"]) == (403, True)


def test_a_tracking_server_that_is_not_there_or_does_not_start_is_told_in_mlflows_form(port):
    status, _, told = asked(port, "GET", "/health", signed("GET", "/health", arn=f"{TEAM}s"))
    assert (status, told) == (
        400,
        {"error_code": "ResourceNotFound", "message": f"there is no tracking server {TEAM}s"},
    )
    status, _, told = asked(port, "GET", "/health", signed("GET", "/health", arn=f"{TEAM}-down"))
    assert (status, told["message"]) == (502, "MLflow does not answer: MLflow did not start")


def test_at_the_end_nobody_listens(echo):
    listener = socket.create_server(("127.0.0.1", 0))
    with serving(Endpoint(lambda arn: echo), listener):
        assert THREAD in [thread.name for thread in threading.enumerate()]
    assert listener.fileno() == -1
    assert THREAD not in [thread.name for thread in threading.enumerate()]

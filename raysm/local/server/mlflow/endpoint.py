"""The one address of all tracking servers: MLflow's requests flow in, signed by AWS's plugin, and its answers flow out.

As everywhere in the embedded SageMaker, whose user asks is told by the kernel, and no signature is computed anew: there
is no secret that two ends could share. But nothing passes that is not signed for a tracking server of the account.
"""

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from raysm.errors import RaysmError
from raysm.local.server.api_error import ApiError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["ARN", "Endpoint", "Upstream", "is_for_mlflow", "serving"]

ARN = "x-mlflow-sm-tracking-server-arn"
"""The header in which AWS's plugin names the tracking server: all of a region have one address."""
SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/,\s]+/\d{8}/([a-z0-9-]+)/sagemaker-mlflow/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}"
)
NOT_UP = {"authorization", "connection", "cookie", "host", "origin", "transfer-encoding", ARN}
"""What tells who asks, and what is each connection's own."""
NOT_DOWN = {"connection", "date", "server", "set-cookie", "transfer-encoding"}
CHUNK = 1 << 16
THREAD = "MLflow's way for an instance"


class Upstream(Protocol):
    """A running MLflow."""

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection for one request."""


def is_for_mlflow(request: Request) -> bool:
    """Whether a request is one of MLflow's."""
    return ARN in request.headers or "/sagemaker-mlflow/" in request.headers.get("Authorization", "")


class Endpoint:
    """The WSGI application."""

    def __init__(self, upstream: Callable[[str], Upstream]) -> None:
        """Pass requests on to what ``upstream`` returns for the ARN of a tracking server."""
        self._upstream = upstream

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ, populate_request=False)
        try:
            response = self._pass_on(request, self._upstream(_signed_for(request)))
        except ApiError as error:
            response = _refusing(error.code, error.message, error.status)
        except (RaysmError, OSError, http.client.HTTPException) as error:
            response = _refusing("INTERNAL_ERROR", f"MLflow does not answer: {error}", 502)
        return response(environ, start_response)

    def _pass_on(self, request: Request, upstream: Upstream) -> Response:
        connection = upstream.connect()
        try:
            headers = {name: value for name, value in request.headers if name.lower() not in NOT_UP}
            # As it comes, and as it goes: an artifact of a gigabyte is held by nobody.
            body = request.stream if request.content_length else None
            connection.request(request.method, request.environ["RAW_URI"], body, headers)
            answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        passed = [(name, value) for name, value in answer.getheaders() if name.lower() not in NOT_DOWN]
        response = Response(iter(lambda: answer.read(CHUNK), b""), answer.status, passed, direct_passthrough=True)
        response.call_on_close(connection.close)
        return response


def _signed_for(request: Request) -> str:
    """Return the ARN that a request is signed for.

    Raises:
        ApiError: It is not signed, or for another region, or the ARN was added to it.
    """
    arn, signature = request.headers.get(ARN, ""), SIGNATURE.fullmatch(request.headers.get("Authorization", ""))
    if signature is None:
        raise ApiError("AccessDeniedException", "a request to MLflow has to be signed for sagemaker-mlflow", 403)
    if ARN not in signature[2].split(";") or arn.split(":")[3:4] != [signature[1]]:
        raise ApiError("AccessDeniedException", f"the request is not signed for {arn or 'a tracking server'}", 403)
    return arn


def _refusing(code: str, message: str, status: int) -> Response:
    # In MLflow's form: its client raises these words.
    content = json.dumps({"error_code": code, "message": message})
    return Response(content, status=status, content_type="application/json")


class _Handler(WSGIRequestHandler):
    """Says nothing of each request, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Pass over it."""


@contextlib.contextmanager
def serving(endpoint: Endpoint, listener: socket.socket) -> Iterator[None]:
    """Serve ``endpoint`` in the block to whoever connects to ``listener``, which is closed at its end."""
    with listener:
        host, port = listener.getsockname()[:2]
        server = make_server(host, port, endpoint, threaded=True, request_handler=_Handler, fd=listener.fileno())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name=THREAD, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

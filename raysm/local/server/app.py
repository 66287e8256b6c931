"""Route requests: to this server by target or path, otherwise to moto; browsers are refused."""

import contextlib
import io
import json
import re
import socket
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Request, Response

from raysm.local.job_spec import REGION as DEFAULT_REGION
from raysm.local.server import iam
from raysm.local.server.batch.service import SERVICE as BATCH
from raysm.local.server.batch.service import BatchService, operation_of
from raysm.local.server.console import PREFIX, Console, Entering, HandedOver
from raysm.local.server.faults import Call, Faults, xml_error
from raysm.local.server.log_service import GROUPS, TARGET, LogService
from raysm.local.server.market import PRICES, QUOTAS, MarketService
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.operations import Operations
from raysm.local.server.validation import ApiError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["App"]

SAGEMAKER = "SageMaker."
HOSTS = re.compile(r"(127\.\d+\.\d+\.\d+|\[::1\]|([\w.-]+\.)?localhost)(:\d+)?")
"""What a client that means this server calls it; a page that rebinds its own name to 127.0.0.1 has another."""
BATCH_SCOPE = re.compile(rf"Credential=[^,]*/{BATCH}/aws4_request")
"""How the authorisation of a request to Batch reads."""
REGION = re.compile(r"Credential=[^/]*/\d+/([a-z0-9-]+)/")
LONGEST_REQUEST = 16 << 20


class App:
    """The WSGI application.

    Attributes:
        last_request_s: When somebody was last answered, on the monotonic clock.
        answering: How many requests are being answered.
    """

    def __init__(
        self,
        sagemaker: Operations,
        logs: LogService,
        console: Console,
        moto: MotoServices,
        faults: Faults,
        entering: Entering,
        market: MarketService,
        batch: BatchService,
    ) -> None:
        """Take the services that answer, and the faults that decide which requests fail."""
        self._sagemaker = sagemaker
        self._logs = logs
        self._console = console
        self._moto = moto
        self._faults = faults
        self._entering = entering
        self._market = market
        self._batch = batch
        self._groups_made: set[str] = set()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self.last_request_s = time.monotonic()
        self.answering = 0

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        with self._lock:
            self.answering += 1
        try:
            return self._answer(environ, start_response)
        finally:
            with self._lock:
                self.answering -= 1
                self.last_request_s = time.monotonic()

    def _answer(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        # Not told to moto's own Request, which reads the environment anew.
        request = Request(environ, populate_request=False)
        try:
            # Before the body is read: a stranger is not to have this process hold it.
            self._admit(request)
            if self._entering.asks(request.method, request.path):
                self._entering.serve(request.path, _parameters(request), request.environ["werkzeug.socket"])
            refusal = self._refusal(request)
            if refusal is not None:
                return refusal(environ, start_response)
            response = self._permissions(request)
            if response is None:
                response = self._ours(request)
        except ApiError as error:
            response = _refusing(error)
        except HandedOver:
            raise
        except Exception as error:
            traceback.print_exc()
            message = f"the embedded SageMaker failed: {type(error).__name__}: {error}"
            # In AWS's form: a client raises these words, where a page of HTML would be an error of its own.
            response = _response({"__type": "InternalFailure", "message": message}, 500)
        # moto looks at the object, and then writes: of two at one moment both would find it as they have read it.
        with self._writing if _is_conditional(request) else contextlib.nullcontext():
            answer = (self._by_moto if response is None else response)(environ, start_response)
        if not request.path.startswith(PREFIX) and self._faults.loses_answer(_region(request)):
            return _lost(environ, answer)
        return answer

    def _by_moto(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Have moto answer; refuse in the service's own form what moto does not emulate."""
        call = _call(Request(environ, populate_request=False))
        try:
            answer, status, headers = run_wsgi_app(self._moto.application, environ)
            # A page for people is what moto's router answers where a service has no such path.
            if status[0] not in "45" or not _is_page(content := b"".join(answer)):
                start_response(status, headers.to_wsgi_list())
                return answer if status[0] not in "45" else [content]
            reason = ""
        except NotImplementedError:
            reason = ""
        except Exception as error:
            # moto fails at parameters that it does not expect. It would fail again, and boto3 retries a 5xx.
            reason = f" with these parameters ({type(error).__name__}: {error})"
        what = call.operation or f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        message = f"the embedded SageMaker does not emulate {what} of the service {call.service or 's3'}{reason}"
        return _refused(ApiError("NotImplementedException", message), call)(environ, start_response)

    def _refusal(self, request: Request) -> Response | None:
        """Return how AWS refuses a request that it might have answered; None where it does not."""
        if request.path.startswith(PREFIX):
            return None
        call = _call(request)
        try:
            self._faults.refuse(call)
        except ApiError as error:
            # What is not read of this request would be taken for the next one's.
            for _ in iter(lambda: request.stream.read(1 << 16), b""):
                pass
            return _refused(error, call)
        return None

    def _admit(self, request: Request) -> None:
        """Refuse pages in a browser, which could run programs as this user; ``HttpServer`` refuses other users."""
        # A browser sends Origin wherever one site's page speaks to another; no client of AWS does.
        if "Origin" in request.headers or not HOSTS.fullmatch(request.headers.get("Host", "")):
            raise ApiError(
                "AccessDeniedException", "the embedded SageMaker answers no browser, and only on 127.0.0.1", 403
            )

    def _permissions(self, request: Request) -> Response | None:
        if not iam.IAM.search(request.headers.get("Authorization", "")):
            return None
        allowed = iam.answer(_body(request), self._moto)
        return None if allowed is None else Response(allowed, content_type="text/xml")

    def _ours(self, request: Request) -> Response | None:
        """Answer what is ours to answer; None leaves it to moto, which can read the body anew."""
        if request.path.startswith(PREFIX):
            return _response(self._console.answer(request.method, request.path))
        if BATCH_SCOPE.search(request.headers.get("Authorization", "")):
            return _response(self._batch.answer(request.method, request.path, _parameters(request), _region(request)))
        service, dot, operation = request.headers.get("X-Amz-Target", "").partition(".")
        if service + dot in (PRICES, QUOTAS):
            answer = self._market.answer(service + dot + operation, _parameters(request), _region(request))
            return None if answer is None else _response(answer)
        if service + dot not in (SAGEMAKER, TARGET):
            return None
        parameters, region = _parameters(request), _region(request)
        if service + dot == SAGEMAKER:
            if self._sagemaker.has(operation, parameters):
                return _response(self._sagemaker.answer(operation, parameters, region))
            return None
        answer = self._logs.answer(operation, parameters, region)
        if answer is None:
            self._make_groups(region)
            return None
        return _response(answer)

    def _make_groups(self, region: str) -> None:
        """Have moto list our groups among its own."""
        with self._lock:
            # moto keeps the groups of each region apart.
            if region in self._groups_made:
                return
            self._groups_made.add(region)
        for group in GROUPS:
            self._moto.client("logs", region).create_log_group(logGroupName=group)


def _call(request: Request) -> Call:
    return Call.of(
        dict(request.headers),
        lambda: _body(request),
        lambda: _parameters(request),
        lambda: operation_of(request.method, request.path),
    )


def _is_page(content: bytes) -> bool:
    return content[:14].lower() == b"<!doctype html"


def _refused(error: ApiError, call: Call) -> Response:
    if call.in_json:
        return _refusing(error)
    return Response(xml_error(error, call.service), status=error.status, content_type="text/xml")


def _body(request: Request) -> bytes:
    """Return the body, and leave it to be read again by whoever answers."""
    if (request.content_length or 0) > LONGEST_REQUEST:
        raise ApiError("RequestEntityTooLargeException", f"a request has at most {LONGEST_REQUEST} bytes", 400)
    body = request.get_data()
    request.environ["wsgi.input"] = io.BytesIO(body)
    return body


def _parameters(request: Request) -> Mapping[str, Any]:
    try:
        parameters = json.loads(_body(request) or b"{}")
    except ValueError as error:
        raise ApiError("SerializationException", f"the request is not JSON: {error}") from None
    if not isinstance(parameters, dict):
        raise ApiError("SerializationException", "the request is not a JSON object")
    return parameters


def _is_conditional(request: Request) -> bool:
    """Whether it writes an object only as long as it is as somebody has read it."""
    return request.method == "PUT" and ("If-Match" in request.headers or "If-None-Match" in request.headers)


def _region(request: Request) -> str:
    # The signature alone names it: all regions have this one endpoint.
    named = REGION.search(request.headers.get("Authorization", ""))
    return named[1] if named else DEFAULT_REGION


def _lost(environ: "WSGIEnvironment", answer: Iterable[bytes]) -> Iterable[bytes]:
    """Carry a request out to its end, and close the connection without a word of it."""
    for _ in answer:
        pass
    with contextlib.suppress(OSError):  # the client has closed it
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return [b""]


def _refusing(error: ApiError) -> Response:
    # Both spellings: AWS's services use either, so that botocore looks for both and other clients for one.
    content = {"__type": error.code, "message": error.message, "Message": error.message}
    return _response(content, error.status)


def _response(content: Mapping[str, Any], status: int = 200) -> Response:
    response = Response(json.dumps(content), status=status, content_type="application/x-amz-json-1.1")
    if status >= 400:
        response.headers["x-amzn-ErrorType"] = str(content.get("__type"))
    return response

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
from raysm.local.server.batch import SERVICE as BATCH
from raysm.local.server.batch import BatchService, operation_of
from raysm.local.server.console import PREFIX, Console, Entering, HandedOver
from raysm.local.server.faults import Call, Faults, xml_error
from raysm.local.server.log_service import GROUPS, TARGET, LogService
from raysm.local.server.market import PRICES, QUOTAS, MarketService
from raysm.local.server.moto_services import IAM, MotoServices, simulate_policy
from raysm.local.server.operations import Operations
from raysm.local.server.validation import ApiError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

SAGEMAKER = "SageMaker."
HOSTS = re.compile(r"(127\.\d+\.\d+\.\d+|\[::1\]|([\w.-]+\.)?localhost)(:\d+)?")
"""Host names of this server in requests; a web page that rebinds its own name to 127.0.0.1 has another."""
BATCH_SCOPE = re.compile(rf"Credential=[^,]*/{BATCH}/aws4_request")
"""The authorization of a request to Batch."""
REGION = re.compile(r"Credential=[^/]*/\d+/([a-z0-9-]+)/")
MAX_REQUEST = 16 << 20


class App:
    """The WSGI application.

    Attributes:
        last_request_s: Time of the last answer, on the monotonic clock.
        answering: Number of requests that are being answered.
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
        # moto reads the environment again for its own Request.
        request = Request(environ, populate_request=False)
        try:
            # Before the body is read into memory.
            self._admit(request)
            if self._entering.asks(request.method, request.path):
                self._entering.serve(request.path, _parameters(request), request.environ["werkzeug.socket"])
            refusal = self._scenario_error(request)
            if refusal is not None:
                return refusal(environ, start_response)
            response = self._simulated_policy(request)
            if response is None:
                response = self._answer_here(request)
        except ApiError as error:
            response = _json_error(error)
        except HandedOver:
            raise
        except Exception as error:
            traceback.print_exc()
            message = f"the embedded SageMaker failed: {type(error).__name__}: {error}"
            # In AWS's form, so that a client shows this message.
            response = _response({"__type": "InternalFailure", "message": message}, 500)
        # moto checks the condition and then writes: without the lock, two requests at a time could both succeed.
        with self._writing if _is_conditional(request) else contextlib.nullcontext():
            answer = (self._answer_by_moto if response is None else response)(environ, start_response)
        if not request.path.startswith(PREFIX) and self._faults.loses_answer(_region(request)):
            return _drop_answer(environ, answer)
        return answer

    def _answer_by_moto(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Let moto answer; refuse requests that moto does not emulate, in the service's form."""
        call = _call(Request(environ, populate_request=False))
        try:
            answer, status, headers = run_wsgi_app(self._moto.application, environ)
            # moto's router answers an unknown path with a page of HTML.
            if status[0] not in "45" or not _is_html(content := b"".join(answer)):
                start_response(status, headers.to_wsgi_list())
                return answer if status[0] not in "45" else [content]
            reason = ""
        except NotImplementedError:
            reason = ""
        except Exception as error:
            # moto fails at unexpected parameters; a 5xx would be retried.
            reason = f" with these parameters ({type(error).__name__}: {error})"
        what = call.operation or f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        message = f"the embedded SageMaker does not emulate {what} of the service {call.service or 's3'}{reason}"
        return _error_response(ApiError("NotImplementedException", message), call)(environ, start_response)

    def _scenario_error(self, request: Request) -> Response | None:
        """Return the error that the scenario answers a request with, or None."""
        if request.path.startswith(PREFIX):
            return None
        call = _call(request)
        try:
            self._faults.refuse(call)
        except ApiError as error:
            # Read the rest of the request, or the server takes it for the next one.
            for _ in iter(lambda: request.stream.read(1 << 16), b""):
                pass
            return _error_response(error, call)
        return None

    def _admit(self, request: Request) -> None:
        """Refuse browsers, whose pages could run programs as this user; ``HttpServer`` refuses other users."""
        # A browser sends Origin for another site's page; no client of AWS does.
        if "Origin" in request.headers or not HOSTS.fullmatch(request.headers.get("Host", "")):
            raise ApiError(
                "AccessDeniedException", "the embedded SageMaker refuses browsers, and answers only on 127.0.0.1", 403
            )

    def _simulated_policy(self, request: Request) -> Response | None:
        if not IAM.search(request.headers.get("Authorization", "")):
            return None
        allowed = simulate_policy(_body(request), self._moto)
        return None if allowed is None else Response(allowed, content_type="text/xml")

    def _answer_here(self, request: Request) -> Response | None:
        """Answer a request to this server's services; None leaves it to moto."""
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
        """Make the groups of the jobs' logs in moto, so that it lists them."""
        with self._lock:
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


def _is_html(content: bytes) -> bool:
    return content[:14].lower() == b"<!doctype html"


def _error_response(error: ApiError, call: Call) -> Response:
    if call.in_json:
        return _json_error(error)
    return Response(xml_error(error, call.service), status=error.status, content_type="text/xml")


def _body(request: Request) -> bytes:
    """Return the body, and leave it to be read again."""
    if (request.content_length or 0) > MAX_REQUEST:
        raise ApiError("RequestEntityTooLargeException", f"a request has at most {MAX_REQUEST} bytes", 400)
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
    """Return whether the request writes an object only if it has not changed."""
    return request.method == "PUT" and ("If-Match" in request.headers or "If-None-Match" in request.headers)


def _region(request: Request) -> str:
    # All regions have this endpoint; only the signature names the region.
    named = REGION.search(request.headers.get("Authorization", ""))
    return named[1] if named else DEFAULT_REGION


def _drop_answer(environ: "WSGIEnvironment", answer: Iterable[bytes]) -> Iterable[bytes]:
    """Close the connection without the answer of a request that was carried out."""
    for _ in answer:
        pass
    with contextlib.suppress(OSError):  # the client closed it
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return [b""]


def _json_error(error: ApiError) -> Response:
    # Both spellings: AWS's services use either, and some clients look for only one.
    content = {"__type": error.code, "message": error.message, "Message": error.message}
    return _response(content, error.status)


def _response(content: Mapping[str, Any], status: int = 200) -> Response:
    response = Response(json.dumps(content), status=status, content_type="application/x-amz-json-1.1")
    if status >= 400:
        response.headers["x-amzn-ErrorType"] = str(content.get("__type"))
    return response

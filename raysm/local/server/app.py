"""Route requests: to this server by target or path, otherwise to moto; browsers are refused."""

import contextlib
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

from raysm.local.server.batch import SERVICE as BATCH
from raysm.local.server.batch import BatchService
from raysm.local.server.console import PREFIX, ConnectionTakenOver, Console, RemoteAccess
from raysm.local.server.faults import Call, Faults, xml_error
from raysm.local.server.log_service import GROUPS, TARGET, LogService
from raysm.local.server.market import PRICES, QUOTAS, MarketService
from raysm.local.server.moto_services import MotoServices, simulate_policy
from raysm.local.server.operations import Operations
from raysm.local.server.validation import ApiError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

SAGEMAKER = "SageMaker."
HOSTS = re.compile(r"(127\.\d+\.\d+\.\d+|\[::1\]|([\w.-]+\.)?localhost)(:\d+)?")
"""Host names of this server in requests; a web page that rebinds its own name to 127.0.0.1 has
another."""


class App:
    """The WSGI application.

    ``last_request_s`` is on the monotonic clock, ``answering`` counts requests in work.
    """

    def __init__(
        self,
        sagemaker: Operations,
        logs: LogService,
        console: Console,
        moto: MotoServices,
        faults: Faults,
        remote_access: RemoteAccess,
        market: MarketService,
        batch: BatchService,
    ) -> None:
        self._sagemaker = sagemaker
        self._logs = logs
        self._console = console
        self._moto = moto
        self._faults = faults
        self._remote_access = remote_access
        self._market = market
        self._batch = batch
        self._groups_made: set[str] = set()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self.last_request_s = time.monotonic()
        self.answering = 0

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        with self._lock:
            self.answering += 1
        try:
            return self._answer(environ, start_response)
        finally:
            with self._lock:
                self.answering -= 1
                self.last_request_s = time.monotonic()

    def _answer(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        # moto reads the environment again for its own Request.
        request = Request(environ, populate_request=False)
        call = Call(request)
        is_own = request.path.startswith(PREFIX)
        response: Response | None
        try:
            # Before the body is read into memory.
            self._admit(request)
            if self._remote_access.asks(request.method, request.path):
                self._remote_access.serve(
                    request.path, call.parameters, request.environ["werkzeug.socket"]
                )
            response = (None if is_own else self._scenario_error(call)) or self._answer_here(call)
        except ApiError as error:
            response = _json_error(error)
        except ConnectionTakenOver:
            raise
        except Exception as error:
            traceback.print_exc()
            message = f"the embedded SageMaker failed: {type(error).__name__}: {error}"
            # In AWS's form, so that a client shows this message.
            response = _response({"__type": "InternalFailure", "message": message}, 500)
        # moto is not made for writes of one object at a time: two that have a condition could both
        # succeed, and without one it may close the first content while it still answers.
        with self._writing if request.method == "PUT" else contextlib.nullcontext():
            if response is None:
                answer = self._answer_by_moto(call, environ, start_response)
            else:
                answer = response(environ, start_response)
        if not is_own and self._faults.loses_answer(call.region):
            # Close the connection without the answer of a request that was carried out.
            for _ in answer:
                pass
            with contextlib.suppress(OSError):  # the client closed it
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return [b""]
        return answer

    def _answer_by_moto(
        self, call: Call, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Let moto answer; refuse requests that moto does not emulate, in the service's form."""
        try:
            try:
                answer, status, headers = run_wsgi_app(self._moto.application, environ)
            except ValueError:
                if environ["REQUEST_METHOD"] != "GET":
                    raise
                # moto closes the content of an object that another request overwrites: read again.
                answer, status, headers = run_wsgi_app(self._moto.application, environ)
            # moto's router answers an unknown path with a page of HTML.
            if (
                status[0] not in "45"
                or (content := b"".join(answer))[:14].lower() != b"<!doctype html"
            ):
                start_response(status, headers.to_wsgi_list())
                return answer if status[0] not in "45" else [content]
            reason = ""
        except NotImplementedError:
            reason = ""
        except Exception as error:
            # moto fails at unexpected parameters; a 5xx would be retried.
            reason = f" with these parameters ({type(error).__name__}: {error})"
        what = call.operation or f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        message = (
            f"the embedded SageMaker does not emulate {what} of the service "
            f"{call.service or 's3'}{reason}"
        )
        return _error_response(ApiError("NotImplementedException", message), call)(
            environ, start_response
        )

    def _scenario_error(self, call: Call) -> Response | None:
        try:
            self._faults.refuse(call)
        except ApiError as error:
            # Read the rest of the request, or the server takes it for the next one.
            for _ in iter(lambda: call.request.stream.read(1 << 16), b""):
                pass
            return _error_response(error, call)
        return None

    def _admit(self, request: Request) -> None:
        """Refuse browsers, whose pages could run programs as this user.

        ``HttpServer`` refuses other users.
        """
        # A browser sends Origin for another site's page; no client of AWS does.
        if "Origin" in request.headers or not HOSTS.fullmatch(request.headers.get("Host", "")):
            raise ApiError(
                "AccessDeniedException",
                "the embedded SageMaker refuses browsers, and answers only on 127.0.0.1",
                403,
            )

    def _answer_here(self, call: Call) -> Response | None:
        """Answer a request to this server's services; None leaves it to moto."""
        if call.request.path.startswith(PREFIX):
            return _response(self._console.answer(call.request.method, call.request.path))
        if call.service == "iam":
            allowed = simulate_policy(call.body, self._moto)
            return None if allowed is None else Response(allowed, content_type="text/xml")
        if call.service == BATCH:
            answer = self._batch.answer(
                call.request.method, call.request.path, call.parameters, call.region
            )
            return _response(answer)
        if call.target.startswith((PRICES, QUOTAS)):
            known = self._market.answer(call.target, call.parameters, call.region)
            return None if known is None else _response(known)
        if call.target.startswith(SAGEMAKER):
            if self._sagemaker.has(call.operation, call.parameters):
                return _response(
                    self._sagemaker.answer(call.operation, call.parameters, call.region)
                )
        elif call.target.startswith(TARGET):
            events = self._logs.answer(call.operation, call.parameters, call.region)
            if events is not None:
                return _response(events)
            self._make_groups(call.region)
        return None

    def _make_groups(self, region: str) -> None:
        """Make the groups of the jobs' logs in moto, so that it lists them."""
        with self._lock:
            if region in self._groups_made:
                return
            self._groups_made.add(region)
        for group in GROUPS:
            self._moto.client("logs", region).create_log_group(logGroupName=group)


def _error_response(error: ApiError, call: Call) -> Response:
    if call.in_json:
        return _json_error(error)
    return Response(xml_error(error, call.service), status=error.status, content_type="text/xml")


def _json_error(error: ApiError) -> Response:
    # Both spellings: AWS's services use either, and some clients look for only one.
    content = {"__type": error.code, "message": error.message, "Message": error.message}
    return _response(content, error.status)


def _response(content: Mapping[str, Any], status: int = 200) -> Response:
    response = Response(
        json.dumps(content), status=status, content_type="application/x-amz-json-1.1"
    )
    if status >= 400:
        response.headers["x-amzn-ErrorType"] = str(content.get("__type"))
    return response

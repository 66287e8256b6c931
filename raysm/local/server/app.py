"""The way of a request: ours by its target or path, all else moto's; strangers are turned away first."""

import json
import re
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raysm.local.server import iam
from raysm.local.server.api_error import ApiError
from raysm.local.server.console import PREFIX, Console
from raysm.local.server.log_service import GROUPS, TARGET, LogService
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.operations import Operations
from raysm.local.server.peers import is_ours

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["App"]

SAGEMAKER = "SageMaker."
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 500: "Internal Error"}
HOSTS = re.compile(r"(127\.\d+\.\d+\.\d+|\[::1\]|([\w.-]+\.)?localhost)(:\d+)?")
"""What a client that means this server calls it; a page that rebinds its own name to 127.0.0.1 has another."""
REGION = re.compile(r"Credential=[^/]*/\d+/([a-z0-9-]+)/")
LONGEST_REQUEST = 16 << 20


class App:
    """The WSGI application.

    Attributes:
        last_request_s: When somebody was last answered, on the monotonic clock.
        answering: How many requests are being answered.
    """

    def __init__(self, operations: Operations, logs: LogService, console: Console, moto: MotoServices) -> None:
        """Take those who answer."""
        self._operations = operations
        self._logs = logs
        self._console = console
        self._moto = moto
        self._groups_made: set[str] = set()
        self._lock = threading.Lock()
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
        try:
            self._admit(environ)
            allowed = self._permissions(environ)
            if allowed is not None:
                start_response("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(allowed)))])
                return [allowed]
            answer = self._ours(environ)
        except ApiError as error:
            told = {"__type": error.code, "message": error.message, "Message": error.message}
            return _send(start_response, error.status, told)
        except Exception as error:
            traceback.print_exc()
            message = f"the embedded SageMaker failed: {type(error).__name__}: {error}"
            return _send(start_response, 500, {"__type": "InternalFailure", "message": message})
        if answer is None:
            return self._moto.application(environ, start_response)
        return _send(start_response, 200, answer)

    def _admit(self, environ: "WSGIEnvironment") -> None:
        """Turn away other users of this machine, and pages in a browser: they could run programs as this user."""
        host = environ.get("HTTP_HOST", "")
        if "HTTP_ORIGIN" in environ or not HOSTS.fullmatch(host):
            raise ApiError("AccessDeniedException", "the embedded SageMaker answers no browser, and to 127.0.0.1", 403)
        if not is_ours(environ):
            raise ApiError("AccessDeniedException", "the embedded SageMaker answers its own user alone", 403)

    def _permissions(self, environ: "WSGIEnvironment") -> bytes | None:
        if not iam.IAM.search(environ.get("HTTP_AUTHORIZATION", "")):
            return None
        form = _body(environ)
        environ["wsgi.input"] = _Body(form)
        return iam.answer(form, self._moto)

    def _ours(self, environ: "WSGIEnvironment") -> Mapping[str, Any] | None:
        path = environ.get("PATH_INFO", "")
        if path.startswith(PREFIX):
            return self._console.answer(environ["REQUEST_METHOD"], path)
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        prefix, _, operation = target.partition(".")
        if f"{prefix}." not in (SAGEMAKER, TARGET):
            return None
        request, body = _read(environ)
        if prefix + "." == SAGEMAKER and self._operations.has(operation, request):
            return self._operations.answer(operation, request, _region(environ))
        if prefix + "." == TARGET:
            answer = self._logs.answer(operation, request)
            if answer is not None:
                return answer
            self._make_groups(_region(environ))
        environ["wsgi.input"] = _Body(body)
        return None

    def _make_groups(self, region: str) -> None:
        """Have moto list our groups among its own."""
        with self._lock:
            if region in self._groups_made:
                return
            self._groups_made.add(region)
        for group in GROUPS:
            self._moto.client("logs", region).create_log_group(logGroupName=group)


class _Body:
    """A body that was read already."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        size = len(self._rest) if size is None or size < 0 else size
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def readline(self, size: int = -1) -> bytes:
        """Return the next line."""
        line, newline, _ = self._rest.partition(b"\n")
        return self.read(len(line) + len(newline))


def _body(environ: "WSGIEnvironment") -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > LONGEST_REQUEST:
        raise ApiError("RequestEntityTooLargeException", f"a request has at most {LONGEST_REQUEST} bytes", 400)
    return bytes(environ["wsgi.input"].read(length))


def _read(environ: "WSGIEnvironment") -> tuple[Mapping[str, Any], bytes]:
    body = _body(environ)
    try:
        request = json.loads(body or b"{}")
    except ValueError as error:
        raise ApiError("SerializationException", f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise ApiError("SerializationException", "the request is not a JSON object")
    return request, body


def _region(environ: "WSGIEnvironment") -> str:
    found = REGION.search(environ.get("HTTP_AUTHORIZATION", ""))
    return found[1] if found else "us-east-1"


def _send(start_response: "StartResponse", status: int, answer: Mapping[str, Any]) -> list[bytes]:
    body = json.dumps(answer).encode()
    headers = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))]
    if status >= 400:
        headers.append(("x-amzn-ErrorType", str(answer.get("__type"))))
    start_response(f"{status} {REASONS.get(status, 'Error')}", headers)
    return [body]

"""moto's services (S3, CloudWatch, STS, IAM and others): one WSGI application, and boto3 clients for the server itself.

The clients need no socket: botocore calls the application in the caller's thread.
"""

import functools
import io
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

from werkzeug.test import run_wsgi_app

from raysm.local.server.moto_internals import ACCOUNT, make_application, read_stored

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = ["ACCOUNT", "MotoServices"]

LARGE = 64 << 20
"""Bytes above which an object is not held in memory while it is read."""
CHUNK = 1 << 20


class _Raw(io.BytesIO):
    """A body as botocore wants to read it."""

    def stream(self, amt: int = CHUNK, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the body in parts."""
        while chunk := self.read(amt):
            yield chunk


class MotoServices:
    """All of moto's services in this process.

    Attributes:
        application: For requests from outside.
    """

    def __init__(self) -> None:
        """Make the application; each service is imported when it is first used."""
        self.application: WSGIApplication = make_application()
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str = "us-east-1") -> Any:
        """Return a boto3 client of a service."""
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self._make(service, region)
            return self._clients[service, region]

    def _make(self, service: str, region: str) -> Any:
        from boto3.session import Session
        from botocore.config import Config

        # Any keys will do, as moto checks none; without them botocore would look for the user's own.
        session = Session(aws_access_key_id="raysm", aws_secret_access_key="raysm", region_name=region)
        config = Config(
            # No network lies between: what failed once would fail again, only later.
            retries={"total_max_attempts": 1},
            # Nor can anything be torn on the way: by default botocore sums up each upload, and checks each download.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
        )
        client = session.client(service, endpoint_url="http://127.0.0.1", config=config)
        client.meta.events.register("before-send", functools.partial(_send, self.application))
        return client

    def open_object(self, bucket: str, key: str, size: int) -> Iterator[bytes]:
        """Yield the content of an object in parts; of a large one, no more is held in memory than a part."""
        if size <= LARGE:
            yield self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
            return
        yield from read_stored(bucket, key, size, CHUNK)


def _send(application: "WSGIApplication", request: Any, **_: Any) -> Any:
    """Answer a request of botocore by calling ``application``."""
    from botocore.awsrequest import AWSResponse

    body = request.body
    if not hasattr(body, "read"):
        body = io.BytesIO(body.encode() if isinstance(body, str) else body or b"")
    answer, status, headers = run_wsgi_app(application, _environ(request, body), buffered=True)
    content = b"".join(answer)
    return AWSResponse(request.url, int(status.split()[0]), dict(headers), _Raw(content))


def _environ(request: Any, body: Any) -> dict[str, Any]:
    parts = urlsplit(request.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        # PEP 3333 wants bytes as characters: each of them one of latin-1.
        "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
        "QUERY_STRING": parts.query,
        "REQUEST_URI": target,
        # moto reads the path from here: PATH_INFO is decoded, and a slash in a key would be one of the path.
        "RAW_URI": target,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    headers: Mapping[str, Any] = request.headers
    for name, value in headers.items():
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = text
    return environ

"""A head as the proxy sees it: a server that asks for the token as Ray's dashboard does, and remembers who asked."""

import contextlib
import json
import socket
import threading
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

from raysm.core.client.views.server import LocalServer
from raysm.features.dashboard.charts import PRELOAD, Timeline
from raysm.features.dashboard.dashboard import dashboard_site

TOKEN = "5ec4e7" * 8

VERSION = {"ray_version": "2.59.9", "ray_commit": "0123456789abcdef"}

PAGE = b'<html><body><div id="root"></div></body></html>'

NODE = {
    "cpu": 37.5,
    "mem": [8000, 2000, 75.0, 6000],
    "gpus": [],
    "networkSpeed": [10.0, 20.0],
    "diskIoSpeed": [30.0, 40.0, 0, 0],
    "hostname": "machine",
    "raylet": {
        "nodeId": "ab12",
        "isHeadNode": True,
        "state": "ALIVE",
        "labels": {"raysm.io/host": "algo-1"},
        "objectStoreUsedMemory": 7,
    },
}


class Watched:
    """A job by the test's own script: each read brings the next of ``looks``, metrics or an exception."""

    def __init__(self, *looks, ends=False):
        self.timeline, self.is_over = Timeline(), False
        self.looks, self.ends = list(looks), ends

    def read(self):
        look = self.looks.pop(0) if self.looks else []
        self.is_over = self.ends and not self.looks
        if isinstance(look, Exception):
            raise look
        return look

    def take(self, metrics):
        for metric in metrics:
            self.timeline.add(metric)


@contextlib.contextmanager
def showing(way, cache, watched=None, look_s=0.05, stacks=lambda native: f"stacks, {native}"):
    """Yield the proxy of a job whose dashboard ``way`` leads to."""
    site = partial(
        dashboard_site,
        "digits-1",
        watched or Watched(),
        way,
        TOKEN,
        cache,
        stacks=stacks,
        look_s=look_s,
    )
    with contextlib.closing(LocalServer(site, link=PRELOAD)) as server:
        yield server


NODES = {"result": True, "msg": "", "data": {"summary": [NODE], "nodeLogicalResources": {}}}


@dataclass(frozen=True)
class Answer:
    """What the head answers to one path."""

    body: bytes = b"{}"
    status: int = 200
    headers: tuple = (("Content-Type", "application/json"),)
    breaks: bool = False
    """Whether the connection ends before the last byte that was promised."""


def told(value):
    return Answer(json.dumps(value).encode())


class Head:
    """``answers`` by path with query; ``requests`` are those that came: method, path and headers.

    ``left`` is set once somebody has gone before the end of an answer.
    """

    def __init__(self, port=0):
        self.answers = {
            "": Answer(PAGE),
            "api/version": told(VERSION),
            "nodes?view=summary": told(NODES),
        }
        self.requests = []
        self.connections = []
        self.came = threading.Condition()
        self.left = threading.Event()
        head = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                head.connections.append(self.connection)

            def log_message(self, *_):
                pass

            def handle_any(self):
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                asked = SimpleNamespace(
                    method=self.command, path=self.path, headers=self.headers, body=body
                )
                with head.came:
                    head.requests.append(asked)
                    head.came.notify_all()
                answer = head.answer_to(asked)
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body) + answer.breaks))
                self.end_headers()
                if self.command != "HEAD":
                    self._send(answer)

            def _send(self, answer):
                try:
                    self.wfile.write(answer.body)
                    if answer.breaks:
                        self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # Whoever asked has gone before the end.
                    head.left.set()
                    self.close_connection = True

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()

    def answer_to(self, asked):
        if asked.headers.get("Authorization") != f"Bearer {TOKEN}":
            return Answer(b"no token", 401, ())
        # As Ray has it: what a browser asks for may only read.
        if asked.method not in ("GET", "HEAD") and asked.headers.get("User-Agent", "").startswith(
            "Mozilla"
        ):
            return Answer(b"not for browsers", 405, ())
        return self.answers.get(asked.path.lstrip("/"), Answer(b"nothing", 404, ()))

    def paths(self):
        return [asked.path.lstrip("/") for asked in self.requests]

    def close(self):
        """Be gone, with every connection that was kept alive; harmless when repeated."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving_head(port=0):
    head = Head(port)
    try:
        yield head
    finally:
        head.close()


@contextlib.contextmanager
def way_to(head):
    """A way as ``Job.tunnel`` opens it."""
    yield SimpleNamespace(address=head.address, port=head.port)

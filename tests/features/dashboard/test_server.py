"""The local server of pages: whom it answers, and how it ends."""

import contextlib
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from aiohttp import web

from raysm.core.client.views.server import LocalServer, find_refusal, seen_from_notebook
from tests.support.strangers import needs_two_users, running_as_another_user

OWN = {"Host": "127.0.0.1:8000"}


class Site:
    """Answers with what it was asked."""

    def __init__(self):
        self.happened = []

    @contextlib.asynccontextmanager
    async def __call__(self):
        self.happened.append("begin")
        yield self.answer
        self.happened.append("end")

    async def answer(self, request, path):
        self.happened.append(path)
        return (
            None
            if path == "nowhere"
            else web.Response(text=f"{path}?{request.rel_url.raw_query_string}")
        )


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def server(site):
    server = LocalServer(site)
    yield server
    server.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OWN, None),
        ({"Host": "LOCALHOST:8000"}, None),
        ({"Host": "evil.example:8000"}, 421),
        ({"Host": "127.0.0.1.evil.example:8000"}, 421),
        ({"Host": "hub.example", "X-Forwarded-Context": "/user/x/proxy/8000"}, None),
        ({"Host": "hub.example:8888", "X-Forwarded-Context": "/proxy/8000"}, None),
        # A browser that asks the port itself cannot pass as a Jupyter server.
        ({"Host": "evil.example:8000", "X-Forwarded-Context": "/proxy/8000"}, 421),
        (OWN | {"Origin": "http://127.0.0.1:8000"}, None),
        (OWN | {"Origin": "http://127.0.0.1:9000"}, 403),
        (OWN | {"Origin": "http://evil.example"}, 403),
        (OWN | {"Origin": "null"}, 403),
        (OWN | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, None),
        (OWN | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
def test_requests_of_other_sites_are_refused(headers, status):
    refused = find_refusal(headers, 8000)
    assert (refused and refused[0]) == status


def test_nothing_reaches_the_site_without_the_secret_path_or_from_another_site(server, site, ask):
    prefix = server.prefix
    guesses = [
        prefix[:-1],
        f"{prefix}x",
        prefix.swapcase(),
        f"%{ord(prefix[0]):x}{prefix[1:]}",
        f"x/../{prefix}",
        "ü",
    ]
    for guess in [*guesses, "", "static/js/main.js"]:
        assert ask(server.port, f"/{guess}/api/jobs/".replace("ü", "%C3%BC"))[0] == 404
    assert ask(server.port, f"/{prefix}/", Host=f"evil.example:{server.port}")[0] == 421
    assert (
        ask(server.port, f"/{prefix}/api/jobs/", method="POST", Origin="http://evil.example")[0]
        == 403
    )
    assert site.happened == ["begin"]


def test_every_answer_forbids_the_page_to_load_or_tell_anything_elsewhere(server, ask):
    for path in (f"/{server.prefix}/", f"/{server.prefix}/nowhere", "/"):
        _, headers, _ = ask(server.port, path)
        assert headers["Referrer-Policy"] == "same-origin"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "raysm"


def test_an_error_of_a_request_is_one_line_on_the_terminal(site, ask, caplog):
    async def fails(request, path):
        raise RuntimeError("the upstream is gone")

    site.answer = fails
    server = LocalServer(site)
    assert ask(server.port, f"/{server.prefix}/api/")[0] == 500
    server.close()
    (record,) = (record for record in caplog.records if record.name == "raysm.dashboard")
    assert record.getMessage().endswith("RuntimeError('the upstream is gone')")
    assert record.exc_info is None


def test_it_listens_on_loopback_only(server):
    for family, _, _, _, address in socket.getaddrinfo(
        socket.gethostname(), server.port, type=socket.SOCK_STREAM
    ):
        if not address[0].startswith(("127.", "::1")):
            with (
                socket.socket(family) as other,
                pytest.raises(OSError, match="refused|unreachable"),
            ):
                other.connect(address)


SILENT = """
port, count = values
held = []
for _ in range(count):
    held.append(socket.create_connection(("127.0.0.1", port)))
print("connected", flush=True)
sys.stdin.read()
"""


@needs_two_users
def test_silent_connections_of_another_user_use_no_file_of_this_process(server, ask, capfd):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with running_as_another_user(SILENT, server.port, 300) as said:
        assert said == "connected"
        assert ask(server.port, f"/{server.prefix}/where")[0] == 200
        assert len(list(Path("/proc/self/fd").iterdir())) < before + 100
    assert capfd.readouterr().err == ""


def test_a_connection_without_a_request_is_closed_and_one_with_a_request_is_kept(site):
    server = LocalServer(site, headers_s=1.0)
    with (
        contextlib.closing(server),
        contextlib.closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as used,
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
            used.request("GET", f"/{server.prefix}/first")
            assert used.getresponse().read() == b"first?"
            assert silent.recv(1) == b""
        used.request("GET", f"/{server.prefix}/second")
        assert used.getresponse().read() == b"second?"


def test_a_browser_that_does_not_read_its_answer_holds_no_connection_open(site):
    async def large(request, path):
        return web.Response(body=bytes(64 << 20))

    site.answer = large
    server = LocalServer(site)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as browser:
        browser.sendall(
            f"GET /{server.prefix}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
        )
        assert browser.recv(1)
        server.close()
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := browser.recv(1 << 20):
                received += len(chunk)
    assert received < 64 << 20


def test_a_process_that_ends_closes_its_server():
    code = """
import contextlib
from raysm.core.client.views.server import LocalServer

@contextlib.asynccontextmanager
async def site():
    yield None
    print("closed")

server = LocalServer(site)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("closed\n", "")


DIRECT = "http://127.0.0.1:8000/secret/"


@pytest.mark.parametrize(
    ("environ", "url", "in_frame"),
    [
        ({}, DIRECT, True),
        ({"JPY_PARENT_PID": "8"}, "/base/proxy/8000/secret/", True),
        ({"JUPYTERHUB_SERVICE_PREFIX": "/user/me/"}, "/user/me/proxy/8000/secret/", True),
        ({"SAGEMAKER_APP_TYPE": "JupyterLab"}, "/jupyterlab/default/proxy/8000/secret/", True),
        ({"VSCODE_PID": "1"}, DIRECT, False),
    ],
)
def test_how_a_notebook_shows_a_page_of_this_machine(environ, url, in_frame, monkeypatch):
    pytest.importorskip("jupyter_server_proxy")
    servers = [{"pid": 7, "base_url": "/other/"}, {"pid": 8, "base_url": "/base/"}]
    monkeypatch.setattr("jupyter_server.serverapp.list_running_servers", lambda: servers)
    shown = seen_from_notebook(8000, "secret", environ)
    assert (shown.url, shown.in_frame) == (url, in_frame)

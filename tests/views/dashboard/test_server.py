"""The local server of pages: whom it answers, and how it ends."""

import contextlib
import gc
import json
import socket
import subprocess
import sys
import threading

import pytest
from aiohttp import web

from raysm.views.dashboard.server import LocalServer, Server, refusal, running_servers, seen_from_notebook

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
        return None if path == "nowhere" else web.Response(text=f"{path}?{request.rel_url.raw_query_string}")


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
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": ""}, 421),
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
        (OWN | {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, None),
    ],
)
def test_requests_of_other_sites_are_refused(headers, status):
    refused = refusal(headers, 8000)
    assert (refused and refused[0]) == status


def test_nothing_reaches_the_site_without_the_secret_path_or_from_another_site(server, site, ask):
    prefix = server.prefix
    guesses = [prefix[:-1], f"{prefix}x", prefix.swapcase(), f"%{ord(prefix[0]):x}{prefix[1:]}", f"x/../{prefix}", "ü"]
    for guess in [*guesses, "", "static/js/main.js"]:
        assert ask(server.port, f"/{guess}/api/jobs/".replace("ü", "%C3%BC"))[0] == 404
    assert ask(server.port, f"/{prefix}/", Host=f"evil.example:{server.port}")[0] == 421
    assert ask(server.port, f"/{prefix}/api/jobs/", method="POST", Origin="http://evil.example")[0] == 403
    assert site.happened == ["begin"]


def test_every_answer_forbids_the_page_to_load_or_tell_anything_elsewhere(server, ask):
    for path in (f"/{server.prefix}/", f"/{server.prefix}/nowhere", "/"):
        _, headers, _ = ask(server.port, path)
        assert headers["Referrer-Policy"] == "same-origin"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "raysm"


def test_it_listens_on_loopback_only(server):
    for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), server.port, type=socket.SOCK_STREAM):
        if not address[0].startswith(("127.", "::1")):
            with socket.socket(family) as other, pytest.raises(OSError, match="refused|unreachable"):
                other.connect(address)


def test_close_ends_the_site_and_is_harmless_when_repeated(server, site):
    server.close()
    server.close()
    assert site.happened == ["begin", "end"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_a_browser_that_does_not_read_its_answer_holds_no_connection_open(site):
    async def large(request, path):
        return web.Response(body=bytes(64 << 20))

    site.answer = large
    server = LocalServer(site)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as browser:
        browser.sendall(f"GET /{server.prefix}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert browser.recv(1)
        server.close()
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := browser.recv(1 << 20):
                received += len(chunk)
    assert received < 64 << 20


def test_connections_that_come_while_it_ends_are_ended_too(site):
    browsers, is_over = [], threading.Event()

    def connect(port):
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                browsers.append(socket.create_connection(("127.0.0.1", port), timeout=60))

    server = LocalServer(site)
    threads = [threading.Thread(target=connect, args=(server.port,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(browsers) < 20:
        assert any(thread.is_alive() for thread in threads)
    server.close()
    is_over.set()
    for thread in threads:
        thread.join()
    for browser in browsers:
        with browser, contextlib.suppress(ConnectionResetError):
            assert browser.recv(1) == b""
    # A forgotten connection is closed only now and warns, which fails the test.
    gc.collect()


def test_a_process_that_ends_closes_its_server():
    code = """
import contextlib
from raysm.views.dashboard.server import LocalServer

@contextlib.asynccontextmanager
async def site():
    yield None
    print("closed")

server = LocalServer(site)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("closed\n", "")


def seen(environ, *, has_proxy=True, servers=()):
    return seen_from_notebook(8000, "secret", environ, servers=lambda: servers, is_installed=lambda name: has_proxy)


def test_without_a_notebooks_server_it_is_seen_where_it_is():
    shown = seen({})
    assert (shown.url, shown.in_frame) == ("http://127.0.0.1:8000/secret/", True)


def test_a_jupyter_server_of_this_machine_passes_it_on():
    servers = (Server(pid=7, base_url="/other/"), Server(pid=8, base_url="/base/"))
    assert seen({"JPY_PARENT_PID": "8"}, servers=servers).url == "/base/proxy/8000/secret/"


def test_a_jupyter_server_without_the_proxy_passes_nothing_on():
    environ, servers = {"JPY_PARENT_PID": "8"}, (Server(pid=8, base_url="/"),)
    assert seen(environ, has_proxy=False, servers=servers).url == "http://127.0.0.1:8000/secret/"
    assert seen({"JPY_PARENT_PID": "9"}, servers=servers).url == "http://127.0.0.1:8000/secret/"


@pytest.mark.parametrize("variable", ["VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG"])
def test_where_no_frame_can_show_it_there_is_a_link(variable):
    shown = seen({variable: "1"})
    assert (shown.url, shown.in_frame) == ("http://127.0.0.1:8000/secret/", False)


def test_the_servers_of_this_machine_are_those_that_left_a_record(tmp_path):
    (tmp_path / "jpserver-7.json").write_text(json.dumps({"pid": 7, "base_url": "/a/", "token": "t"}))
    (tmp_path / "jpserver-8.json").write_text("{")
    (tmp_path / "kernel-9.json").write_text(json.dumps({"pid": 9, "base_url": "/b/"}))
    assert running_servers(tmp_path) == [Server(pid=7, base_url="/a/")]
    assert running_servers(tmp_path / "none") == []

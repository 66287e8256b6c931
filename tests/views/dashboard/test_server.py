"""The proxy's own server: what is let in, and what every answer has."""

import contextlib
import gc
import socket
import subprocess
import sys
import threading

import pytest
from aiohttp import web

from raysm.views.dashboard.server import DashboardServer


class Shows:
    """A site that answers with what it was asked."""

    def __init__(self):
        self.happened = []

    async def begin(self):
        self.happened.append("begin")

    async def answer(self, asked):
        self.happened.append(asked.key)
        return None if asked.path == "nowhere" else web.Response(text=asked.key)

    async def end(self):
        self.happened.append("end")


@pytest.fixture
def site():
    return Shows()


@pytest.fixture
def server(site):
    server = DashboardServer(lambda: site)
    yield server
    server.close()


def test_its_address_is_on_loopback_below_a_secret_path(server, ask):
    assert server.url == f"http://127.0.0.1:{server.port}/{server.prefix}/"
    assert ask(server.port, f"/{server.prefix}/api/jobs/?a=1")[2] == b"api/jobs/?a=1"


def test_a_path_is_passed_on_as_it_was_quoted(server, ask):
    assert ask(server.port, f"/{server.prefix}/a%20b?q=%2F")[2] == b"a%20b?q=%2F"


@pytest.mark.parametrize("path", ["/", "/api/jobs/", "/wrong/", "/static/js/main.js"])
def test_without_the_secret_path_there_is_nothing(server, site, ask, path):
    status, _, body = ask(server.port, path)
    assert (status, body) == (404, b"there is nothing here")
    assert site.happened == ["begin"]


def test_the_secret_path_alone_leads_to_the_page(server, ask):
    status, headers, _ = ask(server.port, f"/{server.prefix}")
    assert (status, headers["Location"]) == (307, f"{server.prefix}/")


def test_a_name_that_somebody_made_lead_here_is_refused(server, site, ask):
    status, _, _ = ask(server.port, f"/{server.prefix}/", Host=f"evil.example:{server.port}")
    assert status == 421
    assert site.happened == ["begin"]


def test_another_pages_request_is_refused(server, site, ask):
    status, _, _ = ask(server.port, f"/{server.prefix}/api/jobs/", method="POST", Origin="http://evil.example")
    assert status == 403
    assert site.happened == ["begin"]


def test_every_answer_keeps_the_page_to_itself(server, ask):
    for path in (f"/{server.prefix}/", f"/{server.prefix}/nowhere", "/"):
        _, headers, _ = ask(server.port, path)
        assert headers["Referrer-Policy"] == "same-origin"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "raysm"


def test_what_the_site_does_not_know_is_not_there(server, ask):
    assert ask(server.port, f"/{server.prefix}/nowhere")[0] == 404


def test_it_listens_on_loopback_alone(server):
    for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), server.port, type=socket.SOCK_STREAM):
        if not address[0].startswith(("127.", "::1")):
            with socket.socket(family) as other, pytest.raises(OSError, match="refused|unreachable"):
                other.connect(address)


def test_closing_ends_what_it_shows_and_is_harmless_when_repeated(server, site):
    server.close()
    server.close()
    assert site.happened == ["begin", "end"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_a_browser_that_does_not_read_its_answer_holds_no_connection_open():
    class Large(Shows):
        async def answer(self, asked):
            self.happened.append("asked")
            return web.Response(body=bytes(64 << 20))

    site = Large()
    server = DashboardServer(lambda: site)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as browser:
        browser.sendall(f"GET /{server.prefix}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert browser.recv(1)
        server.close()
        received = 0
        # Until its end, or until it is told that there comes no more.
        with contextlib.suppress(ConnectionResetError):
            while chunk := browser.recv(1 << 20):
                received += len(chunk)
    assert received < 64 << 20


def test_connections_that_come_while_it_ends_are_ended_too():
    browsers, is_over = [], threading.Event()

    def connect(port):
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                browsers.append(socket.create_connection(("127.0.0.1", port), timeout=60))

    server = DashboardServer(Shows)
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
    # One that was forgotten is closed only now, and warns of it, which fails the test.
    gc.collect()


def test_a_process_that_ends_closes_what_it_left_open():
    code = """
from raysm.views.dashboard.server import DashboardServer

class Site:
    async def begin(self): pass
    async def end(self): print("closed")

server = DashboardServer(Site)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("closed\n", "")


def test_a_site_that_cannot_begin_is_told_to_whoever_wanted_it():
    class Fails(Shows):
        async def begin(self):
            raise ValueError("no such site")

    with pytest.raises(ValueError, match="no such site"):
        DashboardServer(Fails)


def test_an_error_of_a_request_is_one_line_on_the_terminal(server, site, ask, caplog):
    async def fails(asked):
        raise RuntimeError("the upstream is gone")

    site.answer = fails
    assert ask(server.port, f"/{server.prefix}/api/")[0] == 500
    (record,) = (record for record in caplog.records if record.name == "raysm.dashboard")
    assert record.getMessage().endswith("RuntimeError: the upstream is gone")
    assert record.exc_info is None

"""The dashboard of a job that runs, through the whole proxy, against a head of the test's own."""

import contextlib
import http.client
import socket
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from raysm.contract.dashboard_record import history_key
from raysm.contract.events import Metric
from raysm.errors import InvalidRequest, ServiceError
from raysm.views.dashboard.live import LiveSite
from raysm.views.dashboard.server import DashboardServer
from raysm.views.dashboard.timeline import Timeline
from tests.support.dashboard_head import TOKEN, Answer, serving_head, told, way_to

WAIT_S = 60.0
LOOK_S = 0.05


class Watched:
    """What a job says, by the test's own script: each look brings the next of ``looks``."""

    def __init__(self, *looks, over=False):
        self.timeline, self.is_over = Timeline(), False
        self.looks, self.ends = list(looks), over

    def read(self):
        look = self.looks.pop(0) if self.looks else []
        if isinstance(look, Exception):
            raise look
        return look

    def take(self, events):
        for event in events:
            self.timeline.add(event)
        self.is_over = self.ends and not self.looks


class Page:
    def __init__(self, text):
        self.text = text

    async def answer(self, asked):
        from aiohttp import web

        return web.Response(text=self.text)


def left_nothing():
    raise InvalidRequest("it left nothing")


@contextlib.contextmanager
def showing(way, tmp_path, watched=None, ended=left_nothing):
    watched = watched or Watched()
    server = DashboardServer(
        lambda: LiveSite(
            "digits-1", watched, way=way, token=TOKEN, cache=tmp_path / "cache", ended=ended, look_s=LOOK_S
        )
    )
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server(head, tmp_path):
    with showing(partial(way_to, head), tmp_path) as server:
        yield server


@pytest.fixture
def get(server, ask):
    def send(path, **more):
        return ask(server.port, f"/{server.prefix}/{path}", **more)

    return send


def until(condition):
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_the_heads_page_is_shown_and_needs_no_token(get):
    status, _, body = get("")
    assert (status, b'<div id="root">' in body) == (200, True)


def test_a_page_is_there_before_the_heads_dashboard_and_gives_way_to_it(head, tmp_path, ask):
    up = threading.Event()

    @contextlib.contextmanager
    def late():
        # As way_to does: in a thread, until the dashboard answers.
        assert up.wait(WAIT_S)
        yield SimpleNamespace(address=head.address)

    with showing(late, tmp_path) as server:
        try:
            status, _, body = ask(server.port, f"/{server.prefix}/")
            assert (status, b"is being started" in body) == (200, True)
            assert head.requests == []
        finally:
            up.set()
        assert ask(server.port, f"/{server.prefix}/raysm/ready")[0] == 204
        assert b'<div id="root">' in ask(server.port, f"/{server.prefix}/")[2]


def test_a_query_reaches_the_head_as_it_was_sent(get, head):
    head.answers["api/v0/logs?node_id=a%2Fb&glob=*"] = told({"here": True})
    assert get("api/v0/logs?node_id=a%2Fb&glob=*")[2] == b'{"here": true}'


def test_the_token_is_in_nothing_that_the_browser_gets(get, head):
    head.answers["echo"] = Answer(b"{}", 200, (("Set-Cookie", f"ray-authentication-token={TOKEN}"),))
    for path in ("", "echo", "api/version", "api/grafana_health", "nowhere", "raysm/charts/d/rayDefaultDashboard/"):
        _, headers, body = get(path)
        assert TOKEN not in str(headers)
        assert TOKEN.encode() not in body
        assert "Set-Cookie" not in headers


def test_a_replayed_cookie_of_another_cluster_does_not_reach_the_head(get, head):
    get("api/jobs/", Cookie="ray-authentication-token=another", Authorization="Bearer another")
    sent = next(asked for asked in head.requests if asked.path == "/api/jobs/")
    assert sent.headers["Cookie"] is None
    assert sent.headers.get_all("Authorization") == [f"Bearer {TOKEN}"]


def test_rays_own_protection_still_refuses_what_a_browser_would_change(get):
    assert get("api/jobs/", method="POST", body=b"{}", User_Agent="Mozilla/5.0")[0] == 405


def test_a_program_may_change_what_the_owner_may(get, head):
    head.answers["api/jobs/"] = told({"submission_id": "one"})
    status, _, body = get("api/jobs/", method="POST", body=b'{"entrypoint": "true"}', User_Agent="python")
    assert (status, body) == (200, b'{"submission_id": "one"}'), body
    assert [asked.body for asked in head.requests if asked.method == "POST"] == [b'{"entrypoint": "true"}']


def test_ray_is_told_that_it_has_charts_though_nobody_runs_grafana(get):
    assert b'"grafanaHost": "raysm/charts"' in get("api/grafana_health")[2]
    assert b'"result": true' in get("api/prometheus_health")[2]


def test_a_browser_asks_for_the_charts_before_a_busy_head_has_all_of_its_connections(get):
    assert get("")[1]["Link"] == ", ".join(
        f"<api/{name}_health>; rel=preload; as=fetch; crossorigin=anonymous" for name in ("grafana", "prometheus")
    )
    assert "Link" not in get("api/version")[1]


def test_that_there_are_charts_is_said_while_the_head_is_silent(head, tmp_path, ask):
    asked, over = threading.Event(), threading.Event()

    def silent(_):
        asked.set()
        over.wait()
        return told({})

    head.answer_to = silent
    with showing(partial(way_to, head), tmp_path) as server:
        try:
            assert asked.wait(WAIT_S)
            for name in ("grafana", "prometheus"):
                assert b'"result": true' in ask(server.port, f"/{server.prefix}/api/{name}_health")[2]
        finally:
            over.set()


def test_the_charts_show_what_rays_nodes_say_of_themselves(get, head):
    until(lambda: b"algo-1" in get("raysm/charts/d/rayDefaultDashboard/?theme=dark")[2])
    body = get("raysm/charts/d/rayDefaultDashboard/?theme=dark")[2].decode()
    assert "<figcaption>CPU</figcaption>" in body
    assert "<svg" in body


def test_the_charts_begin_with_the_job_and_not_with_the_first_look_at_it(head, tmp_path, ask):
    head.answers[history_key("ab12")] = Answer(b'[7000,{"cpu_percent":{"algo-1":1.0}}]\n[70', 200, ())
    watched = Watched()
    with showing(partial(way_to, head), tmp_path, watched):
        until(lambda: len(watched.timeline.series("cpu_percent").get("algo-1", ())) > 1)
    assert watched.timeline.series("cpu_percent")["algo-1"][0] == (7000.0, 1.0)


def test_the_charts_show_what_the_workload_says_in_its_log(head, tmp_path, ask):
    loss = [Metric(name="loss", value=value, step=step) for step, value in enumerate((3.0, 2.0, 1.0))]
    with showing(partial(way_to, head), tmp_path, Watched(loss)) as server:
        path = f"/{server.prefix}/raysm/charts/d/rayDefaultDashboard/"
        until(lambda: b"<figcaption>loss</figcaption>" in ask(server.port, path)[2])


def test_a_service_that_is_away_for_a_while_does_not_end_the_following(head, tmp_path, ask):
    looks = (ServiceError("away"), [Metric(name="loss", value=1.0)])
    with showing(partial(way_to, head), tmp_path, Watched(*looks)) as server:
        path = f"/{server.prefix}/raysm/charts/d/rayDefaultDashboard/"
        until(lambda: b"loss" in ask(server.port, path)[2])


def test_a_head_that_is_away_is_said_in_rays_own_form(tmp_path, ask, caplog):
    nobody = contextlib.nullcontext(SimpleNamespace(address="127.0.0.1:1"))
    with showing(lambda: nobody, tmp_path) as server:
        status, _, body = ask(server.port, f"/{server.prefix}/api/jobs/")
        status_of_file, _, why = ask(server.port, f"/{server.prefix}/static/js/main.1.js")
    assert (status, status_of_file) == (502, 502)
    assert b"the head cannot be reached" in body
    assert b"the head cannot be reached" in why
    assert caplog.text == ""


def test_a_way_that_broke_is_opened_anew(tmp_path, ask):
    opened = []

    def way():
        opened.append(heads[-1].address)
        return way_to(heads[-1])

    with contextlib.ExitStack() as stack:
        heads = [stack.enter_context(serving_head())]
        server = stack.enter_context(showing(way, tmp_path))
        assert ask(server.port, f"/{server.prefix}/")[0] == 200
        heads.append(stack.enter_context(serving_head()))
        heads[0].close()
        assert ask(server.port, f"/{server.prefix}/")[0] == 200
    assert opened == [head.address for head in heads]


def test_once_the_job_has_ended_the_page_is_what_it_left(head, tmp_path, ask):
    with showing(partial(way_to, head), tmp_path, Watched([], over=True), ended=lambda: [Page("as it was")]) as server:
        until(lambda: ask(server.port, f"/{server.prefix}/")[2] == b"as it was")


def test_what_is_asked_of_a_head_that_is_going_is_answered_by_what_the_job_left_and_not_after_a_minute(tmp_path, ask):
    asked, gives_up = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def way():
        asked.set()
        assert gives_up.wait(WAIT_S)
        raise InvalidRequest("nobody is connected there")
        yield

    def ended():
        assert asked.wait(WAIT_S)
        return [Page("as it was")]

    with showing(way, tmp_path, Watched([], over=True), ended=ended) as server:
        assert ask(server.port, f"/{server.prefix}/api/jobs/")[2] == b"as it was"
        assert not gives_up.is_set()
        gives_up.set()


def test_what_a_job_left_may_come_late(head, tmp_path, ask):
    tries = []

    def ended():
        tries.append(1)
        return left_nothing() if len(tries) == 1 else [Page("as it was")]

    with showing(partial(way_to, head), tmp_path, Watched([], over=True), ended=ended) as server:
        until(lambda: ask(server.port, f"/{server.prefix}/")[2] == b"as it was")


def test_a_look_that_fails_for_no_known_reason_is_told_and_the_next_one_comes(head, tmp_path, ask, caplog):
    looks = (ZeroDivisionError("no known reason"), [Metric(name="loss", value=1.0)])
    with showing(partial(way_to, head), tmp_path, Watched(*looks)) as server:
        path = f"/{server.prefix}/raysm/charts/d/rayDefaultDashboard/"
        until(lambda: b"loss" in ask(server.port, path)[2])
    assert "the dashboard of digits-1 cannot follow its job just now" in caplog.text


def test_two_clusters_at_once_do_not_meet(tmp_path, ask):
    with contextlib.ExitStack() as stack:
        heads = [stack.enter_context(serving_head()) for _ in range(2)]
        servers = [stack.enter_context(showing(partial(way_to, head), tmp_path)) for head in heads]
        for number, head in enumerate(heads):
            head.answers["who"] = told(number)
        assert [ask(server.port, f"/{server.prefix}/who")[2] for server in servers] == [b"0", b"1"]
        assert ask(servers[0].port, f"/{servers[1].prefix}/who")[0] == 404


def test_a_long_answer_comes_piece_by_piece(get, head):
    head.answers["long"] = Answer(b"x" * (5 << 20))
    assert len(get("long")[2]) == 5 << 20


def test_a_browser_that_leaves_in_the_middle_of_an_answer_is_no_fault(server, head, ask, caplog):
    # More than all the buffers on the way hold, so that the proxy still writes when the browser is gone.
    head.answers["long"] = Answer(b"x" * (64 << 20))
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as browser:
        browser.sendall(f"GET /{server.prefix}/long HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert browser.recv(1 << 16)
    assert head.left.wait(WAIT_S)
    assert ask(server.port, f"/{server.prefix}/")[0] == 200
    assert caplog.text == ""


def test_an_answer_that_breaks_off_at_the_head_does_not_look_whole(server, head, caplog):
    head.answers["broken"] = Answer(b"x" * 1000, 200, (), breaks=True)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    connection.request("GET", f"/{server.prefix}/broken")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        connection.getresponse().read()
    connection.close()
    assert caplog.text == ""


def test_a_head_request_has_no_body(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    connection.request("HEAD", f"/{server.prefix}/api/version")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()

"""The dashboard of a job, through the whole proxy, against a head of the test's own."""

import contextlib
import http.client
import json
import logging
import socket
import threading
from functools import partial
from types import SimpleNamespace

import pytest

from raysm.core.client.job.handle import token_of
from raysm.core.client.submit import submit
from raysm.core.protocol.events import Metric, State, line
from raysm.core.request import MetricDefinition
from raysm.errors import InvalidRequest, NotDone, ServiceError
from raysm.features.dashboard.dashboard import Watch, open_dashboard
from raysm.features.script.request import Script
from tests.support.another_user import thief
from tests.support.client_jobs import M5, NOW_MS
from tests.support.dashboard_head import TOKEN, Answer, Watched, serving_head, showing, told, way_to
from tests.support.strangers import asked_by_another_user, needs_two_users, proc_hides_others
from tests.support.waiting import until

WAIT_S = 300.0
CHARTS = "raysm/charts/d/rayDefaultDashboard/?data=1"
COOKIE = f"ray-authentication-token={TOKEN}"


@pytest.fixture
def server(head, tmp_path):
    with showing(partial(way_to, head), tmp_path) as server:
        yield server


@pytest.fixture
def get(server, ask):
    def send(path, **more):
        return ask(server.port, f"/{server.prefix}/{path}", **more)

    return send


def titles(body):
    spec = json.loads(body)
    return [chart["title"] for chart in spec.get("concat", [spec])]


def announce(remote, job, port=8265):
    event = State(name="dashboard", host="algo-1", address=f"http://10.0.0.1:{port}")
    remote.write_log(job.name, "algo-1", [(NOW_MS, line(event))])


# Open


def test_a_running_job_shows_its_heads_page_with_the_jobs_token(remote, job, head, ask):
    announce(remote, job)
    places = []

    def tunnel(job, place):
        places.append((job.name, place.host, place.port))
        return way_to(head)

    with open_dashboard(job, tunnel=tunnel) as dashboard:
        ask(dashboard.port, dashboard.url.partition(str(dashboard.port))[2])
        assert repr(dashboard) == f"<Ray dashboard of {job.name}: {dashboard.url}>"
        shown = dashboard._repr_html_()
        assert shown.count(dashboard.url) == 2
        assert "<iframe" in shown
        assert any(thread.name == "raysm dashboard" for thread in threading.enumerate())
    assert not any(thread.name == "raysm dashboard" for thread in threading.enumerate())
    dashboard.close()
    assert places[0] == (job.name, "algo-1", 8265)
    assert head.requests[-1].headers["Authorization"] == f"Bearer {token_of(job)}"


def test_a_job_without_a_dashboard_is_waited_for(remote, job, head, capsys):
    with pytest.raises(NotDone, match=f"{job.name} has no dashboard"):
        open_dashboard(job, timeout=0)
    assert (
        capsys.readouterr().err
        == f"raysm: {job.name} has no dashboard yet (Starting); waiting for it\n"
    )
    with open_dashboard(
        job, say=lambda _: announce(remote, job), tunnel=lambda *_: way_to(head)
    ) as dashboard:
        assert dashboard.port


def test_values_that_metric_definitions_find_in_the_log_are_charted(remote, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    job = submit(
        Script(str(script)),
        cluster=M5,
        on=remote.service,
        metrics=[MetricDefinition("loss", "loss=(.*)")],
    )
    watch = Watch(job)
    lines = ["loss=0.5", line(Metric(name="rows_per_s", value=5.0)), "nothing", "loss=0.0121"]
    remote.write_log(job.name, "algo-1", [(NOW_MS + at, text) for at, text in enumerate(lines)])
    found = watch.read()
    assert [(metric.name, metric.value) for metric in found] == [
        ("loss", 0.5),
        ("rows_per_s", 5.0),
        ("loss", 0.0121),
    ]


def test_an_ended_job_has_no_dashboard(remote, job):
    def end(_=None):
        remote.sagemaker.end(job.name, "Failed")

    with pytest.raises(InvalidRequest, match=rf"\(Failed\).*raysm logs {job.name}"):
        open_dashboard(job, say=end)


# What a browser gets


@pytest.mark.parametrize("lets_in", [True, False])
def test_a_page_is_shown_while_the_dashboard_starts_and_says_if_it_cannot_be_reached(
    head, tmp_path, ask, lets_in
):
    may_go = threading.Event()

    @contextlib.contextmanager
    def late():
        assert may_go.wait(WAIT_S)
        if not lets_in:
            raise InvalidRequest("the job lets nobody in")
        yield SimpleNamespace(address=head.address)

    with showing(late, tmp_path) as server:
        try:
            status, _, body = ask(server.port, f"/{server.prefix}/")
            assert (status, b"is starting" in body, b"location.reload" in body) == (200, True, True)
            assert head.requests == []
            threading.Timer(1.0, may_go.set).start()
            # The reload waits for the end of the same attempt, however long that takes.
            status, _, body = ask(server.port, f"/{server.prefix}/")
        finally:
            may_go.set()
        assert status == (200 if lets_in else 502)
        assert (b'<div id="root">' if lets_in else b"the job lets nobody in") in body


def test_query_method_and_body_reach_the_head_as_they_were_sent(get, head):
    head.answers["api/v0/logs?node_id=a%2Fb&glob=*"] = told({"here": True})
    assert get("api/v0/logs?node_id=a%2Fb&glob=*")[2] == b'{"here": true}'
    head.answers["api/jobs/"] = told({"submission_id": "one"})
    status, _, body = get(
        "api/jobs/", method="POST", body=b'{"entrypoint": "true"}', User_Agent="python"
    )
    assert (status, body) == (200, b'{"submission_id": "one"}'), body
    assert [asked.body for asked in head.requests if asked.method == "POST"] == [
        b'{"entrypoint": "true"}'
    ]


def test_page_has_a_link_to_the_stacks_which_are_read_when_it_is_opened(head, tmp_path, ask):
    asked = []

    def read(native):
        asked.append(native)
        return "rank 1 is in `x < 1` (train.py:9)"

    with showing(partial(way_to, head), tmp_path, stacks=read) as server:
        _, headers, page = ask(server.port, f"/{server.prefix}/")
        assert b'<a href="raysm/stacks"' in page
        assert headers["Content-Type"].startswith("text/html")
        assert not asked
        status, _, body = ask(server.port, f"/{server.prefix}/raysm/stacks")
        ask(server.port, f"/{server.prefix}/raysm/stacks?native")
    assert (status, asked) == (200, [False, True])
    assert b"rank 1 is in `x &lt; 1` (train.py:9)" in body
    assert TOKEN.encode() not in body + page
    assert "raysm/stacks" not in head.paths()


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidRequest("it has ended"), 409), (ServiceError("no answer"), 502)]
)
def test_page_of_the_stacks_says_why_there_are_none(head, tmp_path, ask, error, status):
    def fail(native):
        raise error

    with showing(partial(way_to, head), tmp_path, stacks=fail) as server:
        answered, _, body = ask(server.port, f"/{server.prefix}/raysm/stacks")
    assert answered == status
    assert str(error).encode() in body


def test_the_charts_show_rays_nodes_and_the_jobs_metrics(head, tmp_path, ask, caplog):
    # The service is away once, and a read fails for no known reason: the following goes on.
    looks = (ServiceError("away"), ZeroDivisionError("unknown"), [Metric(name="loss", value=1.0)])
    with showing(partial(way_to, head), tmp_path, Watched(*looks)) as server:
        until(
            lambda: (
                {"loss", "CPU"} <= set(titles(ask(server.port, f"/{server.prefix}/{CHARTS}")[2]))
            )
        )
    assert "the dashboard of digits-1 cannot read the job's log now" in caplog.text


def test_a_broken_connection_is_opened_again(tmp_path, ask):
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


def test_a_page_that_is_open_when_the_job_ends_says_so(head, tmp_path, ask):
    with showing(partial(way_to, head), tmp_path, Watched([], ends=True)) as server:
        until(lambda: ask(server.port, f"/{server.prefix}/api/jobs/")[0] == 410)
        assert b"digits-1 has ended" in ask(server.port, f"/{server.prefix}/")[2]


def test_a_long_answer_comes_piece_by_piece_and_a_browser_may_leave_in_its_middle(
    server, get, head, ask, caplog
):
    head.answers["long"] = Answer(b"x" * (64 << 20))
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as browser:
        browser.sendall(
            f"GET /{server.prefix}/long HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
        )
        assert browser.recv(1 << 16)
    assert head.left.wait(WAIT_S)
    assert get("")[0] == 200
    assert caplog.text == ""


def test_an_answer_that_breaks_off_at_the_head_does_not_look_whole(server, head, caplog):
    head.answers["broken"] = Answer(b"x" * 1000, 200, (), breaks=True)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    connection.request("GET", f"/{server.prefix}/broken")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        connection.getresponse().read()
    connection.close()
    assert caplog.text == ""


# Secrets


def test_the_token_is_in_nothing_that_the_browser_gets(get, head):
    head.answers["echo"] = Answer(b"{}", 200, (("Set-Cookie", COOKIE),))
    for path in ("", "echo", "api/version", "api/grafana_health", "nowhere", CHARTS):
        _, headers, body = get(path)
        assert TOKEN not in str(headers)
        assert TOKEN.encode() not in body
        assert "Set-Cookie" not in headers


def test_credentials_of_the_browser_do_not_reach_the_head(get, head):
    others = {
        "Cookie": COOKIE,
        "Authorization": "Bearer another",
        "X_Ray_Authorization": "Bearer another",
    }
    get("api/jobs/", **others)
    sent = next(asked for asked in head.requests if asked.path == "/api/jobs/")
    assert (sent.headers["Cookie"], sent.headers["X-Ray-Authorization"]) == (None, None)
    assert sent.headers.get_all("Authorization") == [f"Bearer {TOKEN}"]


@needs_two_users
def test_another_user_gets_nothing_and_sees_neither_path_nor_token_in_ps(server, head):
    asked = [
        ("GET", "/", {}),
        ("GET", "/api/jobs/", {"Cookie": COOKIE}),
        ("POST", "/api/jobs/", {}),
    ]
    answers, shown = asked_by_another_user(server.port, *asked)
    assert [status for status, _ in answers] == [403] * len(asked)
    # It saw the processes at all.
    assert "pytest" in shown or proc_hides_others()
    assert server.prefix not in shown
    assert TOKEN not in shown
    assert "api/jobs/" not in head.paths()


def test_neither_the_path_nor_the_token_is_in_a_log_or_known_to_the_head(server, get, head, caplog):
    caplog.set_level(logging.DEBUG)
    head.answers["api/jobs/"] = Answer(b"[]")
    secret = f"/{server.prefix}/"
    forwarded = {"X_Forwarded_Context": secret, "X_ProxyContextPath": secret}
    assert (
        get("api/jobs/", Referer=f"http://127.0.0.1:{server.port}{secret}", **forwarded)[0] == 200
    )
    assert get("nowhere")[0] == 404
    assert server.prefix not in caplog.text
    assert TOKEN not in caplog.text
    assert not any(server.prefix in f"{asked.path} {asked.headers}" for asked in head.requests)


@needs_two_users
def test_the_token_is_not_sent_to_a_port_that_another_user_has(tmp_path, ask):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = SimpleNamespace(address=f"127.0.0.1:{port}")
    with thief(port) as other:
        other.await_port(port)
        with showing(lambda: contextlib.nullcontext(gone), tmp_path) as server:
            status, _, body = ask(server.port, f"/{server.prefix}/api/version")
        assert status == 502
        assert b"another user (uid 65534)" in body
        assert other.end() == ""

"""The server of a session, as any client sees it: calls over a WebSocket, all else and Jupyter by HTTP."""

import asyncio
import contextlib
import datetime
import http.client
import json
import logging
import pickle
import shutil
import socket
import stat
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import cloudpickle
import pytest

from raysm.core.protocol.connections import GREETING
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.session.cluster import host as module
from raysm.features.session.cluster.clients import MAX_MESSAGE_BYTES
from raysm.features.session.cluster.jupyter import COMMAND, Jupyters, settings, summarize_kernels
from raysm.features.session.cluster.lifetime import Activity, LifetimeRules
from raysm.features.session.cluster.server import MAX_HANDSHAKES
from raysm.features.session.protocol import (
    CALL,
    CLOSING,
    DONE,
    WARNING,
    CallRequest,
    Outcome,
    Versions,
    frame,
    unframe,
)
from tests.support import fake_jupyter
from tests.support.sessions import proved, served
from tests.support.strangers import asked_by_another_user, needs_two_users, proc_hides_others
from tests.support.stub_job import TOKEN
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


def connected(server, script, client="a"):
    """Run the coroutine function ``script(socket)`` with a WebSocket to the server."""

    async def go():
        async with proved(server) as session:
            url = f"http://127.0.0.1:{server.port}/events"
            async with session.ws_connect(url, params={"client": client}, max_msg_size=0) as socket:
                return await asyncio.wait_for(script(socket), 60)

    return asyncio.run(go())


def question(number, id, function=abs, args=(-3,), *, client="", wait=20):
    request = CallRequest(kind=CALL, name="f", client=client, python=Versions.here().pickle_version)
    body = cloudpickle.dumps((function, args, {}))
    return frame({"ask": number, "call": id, "wait": wait, "request": to_json(request)}, body)


async def answers(socket, count):
    """Return the next answers, by their number; what calls print is passed over."""
    told = {}
    while len(told) < count:
        message = await socket.receive(timeout=60)
        if message.type is aiohttp.WSMsgType.BINARY:
            head, outcome = unframe(message.data)
            told[head["ask"]] = head, outcome
    return told


def ask(server, *questions, client="a"):
    """Send questions, and return their answers by number."""

    async def script(socket):
        for each in questions:
            await socket.send_bytes(each)
        return await answers(socket, len(questions))

    return connected(server, script, client)


def value(answer):
    head, outcome = answer
    assert head["status"] == 200, head
    assert head["call"]["state"] == DONE
    return pickle.loads(Outcome.decode(outcome).pickled)


def asked(server, method, path, **how):
    """Return status and body of one request."""

    async def go():
        async with proved(server) as session:
            async with session.request(
                method, f"http://127.0.0.1:{server.port}{path}", **how
            ) as got:
                return got.status, await got.read()

    return asyncio.run(go())


def told(server, *args, **how):
    status, body = asked(server, *args, **how)
    return status, json.loads(body)


def test_a_call_that_is_sent_twice_is_executed_once(server):
    answers = ask(server, question(1, "twice"), question(2, "twice"))
    assert value(answers[1]) == value(answers[2]) == 3
    assert server.remote.executed.count("twice") == 1
    # By another connection, too.
    assert value(ask(server, frame({"ask": 7, "call": "twice", "wait": 20}), client="b")[7]) == 3


def waiting_for(gate):
    """Return a function that waits for the file, but not for ever, because a failed test does not make it."""

    def wait():
        end_s = time.monotonic() + 60
        while not gate.exists() and time.monotonic() < end_s:
            time.sleep(0.01)

    return wait


def test_many_questions_are_under_way_at_once_and_a_long_one_delays_no_other(server, tmp_path):
    async def script(socket):
        await socket.send_bytes(question(1, "long", waiting_for(tmp_path / "gate"), ()))
        await socket.send_bytes(question(2, "short"))
        short = await answers(socket, 1)
        (tmp_path / "gate").touch()
        return short, await answers(socket, 1)

    first, second = connected(server, script)
    assert (value(first[2]), [*second]) == (3, [1])


def test_an_answer_comes_after_the_wait_without_an_outcome(server, tmp_path):
    gate = tmp_path / "gate"
    (head, outcome) = ask(server, question(1, "slow", waiting_for(gate), (), wait=0))[1]
    assert (head["call"]["state"] != DONE, outcome) == (True, b"")
    gate.touch()
    assert value(ask(server, frame({"ask": 1, "call": "slow", "wait": 30}))[1]) is None


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        ({"call": "unheard"}, 404, "None"),
        (
            {"call": "x", "request": {"kind": "dance", "name": "f"}},
            400,
            "no call of the kind 'dance'",
        ),
        ({"call": "x", "request": {"kind": CALL}}, 400, "the key 'name' is missing"),
        (
            {"call": "x", "request": {"kind": CALL, "name": "f", "python": "2.7"}},
            400,
            "pickled by Python 2.7",
        ),
        (
            {"call": "x", "wait": "soon", "request": {"kind": CALL, "name": "f"}},
            400,
            "wait is a number of seconds, got 'soon'",
        ),
        ({}, 500, "call"),
    ],
    ids=["unheard", "kind", "name", "python", "wait", "nothing"],
)
def test_an_invalid_question_is_refused_and_executes_nothing(server, head, status, words):
    reply, outcome = ask(server, frame({"ask": 1, **head}))[1]
    assert (reply["status"], outcome) == (status, b"")
    assert words in str(reply.get("error"))
    assert server.host.calls.get("x") is None


def test_a_large_outcome_has_a_connection_of_its_own_and_a_large_message_is_refused(server):
    reply, outcome = ask(server, question(1, "large", bytes, (1 << 20,)))[1]
    assert (reply["elsewhere"], outcome, reply["call"]["state"]) == (True, b"", DONE)

    async def script(socket):
        await socket.send_bytes(bytes(MAX_MESSAGE_BYTES + 1))
        return (await socket.receive(timeout=60)).type, socket.close_code

    assert connected(server, script)[1] == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


def test_a_call_is_interrupted_and_an_unknown_one_is_not_found(server, tmp_path):
    gate = tmp_path / "gate"
    ask(server, question(1, "asleep", waiting_for(gate), (), wait=0))
    assert told(server, "POST", "/calls/asleep/interrupt")[0] == 200
    _, outcome = ask(server, frame({"ask": 1, "call": "asleep", "wait": 30}))[1]
    assert Outcome.decode(outcome).error.cancelled
    gate.touch()
    assert told(server, "GET", "/calls/asleep")[1]["state"] == DONE
    assert asked(server, "GET", "/calls/unheard")[0] == 404


def test_output_is_had_from_any_position_and_comes_to_its_own_client(server):
    async def script(socket):
        await asyncio.to_thread(ask, server, question(1, "for-b", print, ("for b",), client="b"))
        await socket.send_bytes(question(1, "for-a", print, ("for a",), client="a"))
        return await socket.receive_json(timeout=60)

    message = connected(server, script)
    assert (message["call"], message["text"][:5]) == ("for-a", "for a")
    _, answer = told(server, "GET", "/calls/for-b/output", params={"from": 2})
    assert ("".join(piece["text"] for piece in answer["pieces"]), answer["end"]) == ("r b\n", 6)


def test_what_a_call_printed_comes_over_the_next_connection_of_its_client(server, tmp_path):
    wait = waiting_for(tmp_path / "gate")

    def work():
        print("before the cut")
        wait()

    ask(server, question(1, "cut", work, (), client="cut off", wait=0), client="cut off")
    until(lambda: server.host.calls.get("cut").output.end)

    async def script(socket):
        return await socket.receive_json(timeout=60)

    message = connected(server, script, client="cut off")
    (tmp_path / "gate").touch()
    assert (message["call"], message["start"], message["text"]) == ("cut", 0, "before the cut\n")


def test_each_notice_is_sent_once(server):
    def notify(text):
        server.host.notices.append(text)
        server.server.wake_all()

    async def script(socket):
        # The session has heard of the client once it answers.
        await socket.send_bytes(question(1, "before notices"))
        await answers(socket, 1)
        heard = []
        for text in ("one", "two"):
            server.host.loop.call_soon_threadsafe(notify, text)
            heard.append(await socket.receive_json(timeout=60))
        return heard

    assert connected(server, script) == [{"notice": "one"}, {"notice": "two"}]


def test_a_client_says_that_an_outcome_was_delivered(server):
    async def script(socket):
        await socket.send_bytes(question(1, "delivered"))
        await answers(socket, 1)
        assert not server.host.calls.get("delivered").is_delivered
        await socket.send_str(json.dumps({"delivered": "delivered"}))
        await asyncio.to_thread(until, lambda: server.host.calls.get("delivered").is_delivered)

    connected(server, script)


def test_a_heartbeat_attaches_and_goodbye_detaches_at_once(server):
    async def script(socket):
        await socket.send_str("{}")
        there = await asyncio.to_thread(until, lambda: server.host.state().clients)
        await socket.send_str(json.dumps({"leaves": True}))
        return there

    before = server.host.state().clients
    assert connected(server, script, client="beating") >= 1
    until(lambda: server.host.state().clients <= before)


def test_the_session_is_described_and_kept(server):
    _, state = told(server, "GET", "/session")
    assert (state["job"], state["hosts"]) == ("digits-1", ["algo-1", "algo-2"])
    _, kept = told(server, "POST", "/keep", json={"seconds": 7200})
    assert kept["ends_in_s"] > 7000
    assert told(server, "POST", "/keep", json={"seconds": -1})[0] == 400


def test_it_is_closed_with_a_reason_and_takes_no_call_meanwhile(tmp_path):
    with served(tmp_path) as server:
        server.host.calls.closing = "it was closed"
        reply, _ = ask(server, question(1, "late"))[1]
        assert reply["status"] == 410
        assert "closing (it was closed)" in reply["error"]
        server.host.calls.closing = ""
        told(server, "POST", "/close", json={"why": "all done"})
        until(server.is_over.is_set)
    assert server.why == "all done"


def answered(server, path):
    """Return status, headers and body of one request."""

    async def go():
        async with (
            proved(server) as session,
            session.get(f"http://127.0.0.1:{server.port}{path}") as got,
        ):
            return got.status, got.headers, await got.text()

    return asyncio.run(go())


@pytest.mark.parametrize(
    "header", ["X: " + "x" * 64, f"Authorization: Bearer {TOKEN}", f"Cookie: token={TOKEN}"]
)
def test_a_browser_is_never_answered_whatever_it_sends(server, header):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
        stranger.sendall(f"GET /session HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n".encode())
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := stranger.recv(4096):
                heard += piece
    # The greeting is the same for every caller, but for the fresh number in it.
    assert heard.startswith(GREETING)
    assert len(heard) == len(GREETING) + 32


def test_no_answer_sets_a_cookie_or_has_the_token_and_no_log_has_it(server, caplog):
    caplog.set_level(logging.DEBUG)
    for path in ("/session", "/nowhere"):
        _, headers, body = answered(server, path)
        assert "Set-Cookie" not in headers
        assert TOKEN not in f"{headers} {body}"
    assert TOKEN not in caplog.text


@needs_two_users
def test_another_user_gets_nothing_and_sees_no_token_in_ps(server):
    answers, shown = asked_by_another_user(
        server.port, ("GET", "/session", {}), ("GET", "/events", {})
    )
    assert [status for status, _ in answers] == [http.client.BadStatusLine.__name__] * 2
    # It saw the processes at all.
    assert "pytest" in shown or proc_hides_others()
    assert TOKEN not in shown


def test_strangers_who_say_nothing_do_not_keep_clients_out(server):
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(MAX_HANDSHAKES + 20)
        ]
        assert answered(server, "/session")[0] == 200
        # The oldest one is gone: its greeting is all that it gets.
        strangers[0].settimeout(60)
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := strangers[0].recv(4096):
                heard += piece
        assert len(heard) <= len(GREETING) + 32


@pytest.fixture(autouse=True)
def checks_often(monkeypatch):
    monkeypatch.setattr(module, "CHECK_S", 0.05)
    monkeypatch.setattr(module, "JOBS_S", 0.1)


def told_host(server):
    return [(event.name, event.detail) for event in server.events]


def test_its_state_is_json_and_files_lie_where_calls_run(tmp_path):
    rules = LifetimeRules(idle_s=1800, idle_detached_s=300, usd_per_hour=36.0, budget_usd=100.0)
    with served(tmp_path, rules=rules, uptime_s=100.0) as server:
        state = server.host.state()
        assert server.host.path("a/b.csv") == tmp_path / "work" / "a" / "b.csv"
        assert str(server.host.path("/opt/ml/model/x")) == "/opt/ml/model/x"
        with pytest.raises(InvalidRequest, match="is empty"):
            server.host.path("")
    assert (state.job, state.hosts, state.cpus, state.busy) == (
        "digits-1",
        ("algo-1", "algo-2"),
        4.0,
        0,
    )
    assert state.usd == pytest.approx(1.0, abs=0.5)
    assert 250 < state.ends_in_s <= 300
    assert "no client attached" in state.ends_why
    assert json.loads(json.dumps(to_json(state)))["versions"]["raysm"]


def warnings_of(server):
    """Return the warnings so far, after several more looks at whether the end is near."""
    looks = server.jobs.looks
    until(lambda: server.jobs.looks >= looks + 3)
    return [detail for name, detail in told_host(server) if name == WARNING]


def test_the_warning_of_a_spent_budget_names_no_way_to_put_it_off(tmp_path):
    rules = LifetimeRules(idle_s=9e6, idle_detached_s=9e6, usd_per_hour=3600.0, budget_usd=400.0)
    with served(tmp_path, rules=rules, uptime_s=320.0) as server:
        (warning,) = warnings_of(server)
        assert "its budget of 400 USD is spent" in warning
        assert "keep" not in warning


def test_an_idle_session_warns_once_for_each_end(tmp_path):
    # It warns 100 s before its end, so it begins with a warning.
    with served(
        tmp_path, rules=LifetimeRules(idle_s=600, idle_detached_s=400), idle_since_s=320
    ) as server:
        (warning,) = warnings_of(server)
        assert "keep(minutes=…) puts that off" in warning
        server.host.loop.call_soon_threadsafe(server.host.lifetime.keep, time.monotonic() + 90)
        assert len(warnings_of(server)) == 2


def test_an_idle_session_says_why_it_ends(tmp_path):
    with served(tmp_path, rules=LifetimeRules(idle_s=600, idle_detached_s=1)) as server:
        until(server.is_over.is_set)
    assert server.why == "idle for 1 s with no client attached"
    assert told_host(server)[-1] == (CLOSING, server.why)
    assert server.host.notices[-1] == f"the session ends: {server.why}"


def test_a_job_of_rays_puts_off_the_end_as_a_call_does(tmp_path):
    with served(
        tmp_path, rules=LifetimeRules(idle_s=600, idle_detached_s=0.5), seen=Activity(1, 0.0)
    ) as server:
        until(lambda: server.jobs.looks >= 2)
        assert server.host.state().busy == 1
        assert not server.is_over.is_set()
        server.jobs.seen = Activity(0, 60.0)
        until(server.is_over.is_set)
    assert server.why.startswith("idle")


def test_a_budget_that_is_spent_ends_it(tmp_path):
    rules = LifetimeRules(idle_s=600, idle_detached_s=600, usd_per_hour=3600.0, budget_usd=100.0)
    with served(tmp_path, rules=rules, uptime_s=99.8) as server:
        until(server.is_over.is_set)
    assert server.why == "its budget of 100 USD is spent"


BASE = "/secret/"


@asynccontextmanager
async def some(tmp_path, command=fake_jupyter.COMMAND):
    jupyters = Jupyters(tmp_path, tmp_path, command)
    try:
        yield jupyters
    finally:
        await jupyters.close()


def test_a_server_is_private_busy_while_its_kernels_are_and_gone_with_the_session(tmp_path):
    async def go():
        async with some(tmp_path) as jupyters:
            name = await jupyters.start(BASE)
            folder, before = tmp_path / f"j{name}", await jupyters.fetch_activity()
            (folder / "kernels").write_text(json.dumps([{"execution_state": "busy"}]))
            return (
                stat.S_IMODE(folder.stat().st_mode),
                jupyters._running[name].process,
                before,
                await jupyters.fetch_activity(),
            )

    mode, process, before, after = asyncio.run(go())
    assert mode == 0o700
    assert process.returncode is not None
    # An open page is no work.
    assert (before.running, before.idle_s, after.running) == (0, None, 1)


def test_one_that_does_not_come_up_is_told_with_the_end_of_its_log_and_tried_anew(tmp_path):
    async def go():
        async with some(tmp_path, fake_jupyter.FAILING) as jupyters:
            for _ in range(2):
                with pytest.raises(RaysmError, match="the reason"):
                    await jupyters.start(BASE)
            assert jupyters._running == {}

    asyncio.run(go())


@pytest.mark.parametrize("base", ["", "/", "x/", "/x", "/a b/", "//x/"])
def test_a_path_that_is_none_is_refused(tmp_path, base):
    with pytest.raises(InvalidRequest, match="with /"):
        asyncio.run(Jupyters(tmp_path, tmp_path, COMMAND).start(base))


def test_a_head_without_jupyterlab_is_named_with_the_remedy(tmp_path):
    with pytest.raises(InvalidRequest, match=r"requirements=\['jupyterlab'\]"):
        asyncio.run(
            Jupyters(tmp_path, tmp_path, (sys.executable, "-m", "no_such_jupyterlab")).start(BASE)
        )


def test_the_last_kernel_that_was_busy_tells_since_when_none_is():
    at = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    rows = [
        {
            "execution_state": "idle",
            "last_activity": (at - datetime.timedelta(seconds=ago)).isoformat(),
        }
        for ago in (90, 30)
    ]
    seen = summarize_kernels(rows, at.timestamp())
    assert (seen.running, seen.idle_s) == (0, pytest.approx(30))
    assert summarize_kernels([], 0.0).idle_s is None
    # The clock may have been set back meanwhile.
    assert summarize_kernels(rows, 0.0).idle_s == 0.0


def test_its_settings_have_no_token_and_no_port(tmp_path):
    told = settings(BASE, tmp_path / "s", tmp_path)
    assert told["IdentityProvider"] == {"token": ""}
    assert told["ServerApp"]["sock"] == str(tmp_path / "s")
    assert told["ServerApp"]["sock_mode"] == "0600"
    assert "port" not in told["ServerApp"]


def test_its_kernels_listen_at_sockets_in_its_private_folder_instead_of_ports():
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client").KernelManager
    # Short, as sockets lie below it.
    folder = Path(tempfile.mkdtemp(prefix="rs", dir="/tmp"))
    config = pytest.importorskip("traitlets.config").Config(settings(BASE, folder / "s", folder))
    # The server gives each kernel such a file in its folder of runtime files.
    kernel = manager(config=config, connection_file=str(folder / "kernel-1.json"))
    kernel.start_kernel()
    try:
        client = kernel.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        # Shell, outputs, stdin, heartbeat and control.
        assert len(list(folder.glob("kernel-1-ipc-*"))) == 5
        client.stop_channels()
    finally:
        kernel.shutdown_kernel(now=True)
        shutil.rmtree(folder)

"""The server of a session."""

import asyncio
import contextlib
import http.client
import io
import json
import logging
import pickle
import socket

import cloudpickle
import pytest

from raysm.contract.connections import GREETING
from raysm.contract.session import CALL, DONE, SHELL, CallRequest, Outcome, Versions, frame, unframe
from raysm.request.codec import to_json
from raysm.workloads.session.server import MAX_HANDSHAKES, completions
from tests.support.sessions import TOKEN, proved, served, until
from tests.support.strangers import asked_by_another_user, needs_two_users


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


def asked(server, method, path, **how):
    """Return status and body of one request."""

    async def go():
        async with proved(server) as session:
            async with session.request(method, f"http://127.0.0.1:{server.port}{path}", **how) as got:
                return got.status, await got.read()

    return asyncio.run(go())


def told(server, *args, **how):
    status, body = asked(server, *args, **how)
    return status, json.loads(body)


def ask(server, id, function=abs, args=(-3,), wait=30, **fields):
    request = CallRequest(kind=CALL, name="f", python=Versions.here().pickles, **fields)
    body = frame(to_json(request), cloudpickle.dumps((function, args, {})))
    status, answer = asked(server, "POST", f"/calls/{id}", data=body, params={"wait": wait})
    assert status == 200, answer
    head, outcome = unframe(answer)
    return head["call"], outcome


def test_it_listens_on_the_loopback_alone(server):
    with socket.socket() as other:
        other.bind(("127.0.0.2", server.port))  # free: nobody listens on all addresses


def test_a_call_is_answered_with_its_outcome(server):
    status, outcome = ask(server, "answered")
    assert status["state"] == DONE
    assert pickle.loads(Outcome.decode(outcome).pickled) == 3


def test_a_call_that_is_sent_twice_is_executed_once(server):
    assert ask(server, "twice") == ask(server, "twice")
    assert server.remote.executed.count("twice") == 1


def test_who_does_not_wait_is_told_how_it_is_and_asks_again(server, tmp_path):
    gate = tmp_path / "gate"

    def wait():
        import time

        while not gate.exists():
            time.sleep(0.01)

    status, outcome = ask(server, "slow", wait, (), wait=0)
    assert (status["state"] != DONE, outcome) == (True, b"")
    gate.touch()
    status, answer = asked(server, "GET", "/calls/slow", params={"wait": 30})
    assert unframe(answer)[0]["call"]["state"] == DONE


def test_a_call_that_never_arrived_is_not_found(server):
    assert asked(server, "GET", "/calls/unheard")[0] == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"nonsense", "not a frame of a session"),
        (frame({"kind": "dance", "name": "f"}), "no call of the kind 'dance'"),
        (frame({"kind": CALL}), "the key 'name' is missing"),
        (frame({"kind": CALL, "name": "f", "python": "2.7"}), "pickled by Python 2.7"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_words(server, body, words):
    status, answer = told(server, "POST", "/calls/refused", data=body)
    assert status == 400
    assert words in answer["error"]


def test_a_question_whose_wait_is_no_number_is_refused_before_its_call_is_executed(server, tmp_path):
    begun = tmp_path / "begun"
    request = CallRequest(kind=CALL, name="f", python=Versions.here().pickles)
    body = frame(to_json(request), cloudpickle.dumps((begun.touch, (), {})))
    status, answer = told(server, "POST", "/calls/unbegun", data=body, params={"wait": "soon"})
    assert (status, answer["error"]) == (400, "wait is a number of seconds, got 'soon'")
    assert asked(server, "GET", "/calls/unbegun")[0] == 404
    assert not begun.exists()


def test_a_call_is_interrupted(server):
    import time

    ask(server, "long", time.sleep, (1.0,), wait=0)
    status, _ = told(server, "POST", "/calls/long/interrupt")
    assert status == 200
    _, answer = asked(server, "GET", "/calls/long", params={"wait": 30})
    assert Outcome.decode(unframe(answer)[1]).error.cancelled


def test_what_a_call_printed_is_had_from_any_position(server):
    ask(server, "printing", print, ("hello",))
    _, answer = told(server, "GET", "/calls/printing/output", params={"from": 2})
    assert ("".join(piece["text"] for piece in answer["pieces"]), answer["end"]) == ("llo\n", 6)


def test_its_own_client_hears_what_a_call_prints_and_no_other_does(server):
    async def go():
        async with proved(server) as session:
            url = f"http://127.0.0.1:{server.port}/events"
            async with (
                session.ws_connect(url, params={"client": "a"}) as mine,
                session.ws_connect(url, params={"client": "b"}) as other,
            ):
                await asyncio.to_thread(ask, server, "for-a", print, ("for a",), client="a")
                await asyncio.to_thread(ask, server, "for-b", print, ("for b",), client="b")
                return await mine.receive_json(timeout=60), await other.receive_json(timeout=60)

    mine, other = asyncio.run(go())
    assert (mine["call"], mine["text"][:5]) == ("for-a", "for a")
    assert (other["call"], other["text"][:5]) == ("for-b", "for b")


def test_a_heartbeat_is_what_attaches_and_goodbye_detaches_at_once(server):
    async def go():
        async with proved(server) as session:
            url = f"http://127.0.0.1:{server.port}/events"
            async with session.ws_connect(url, params={"client": "beating"}) as mine:
                await mine.send_str("{}")
                there = await asyncio.to_thread(until, lambda: server.host.state().clients)
                await mine.send_str(json.dumps({"leaves": True}))
                return there

    before = server.host.state().clients
    assert asyncio.run(go()) >= 1
    until(lambda: server.host.state().clients <= before)


def test_the_session_is_described_and_kept(server):
    _, state = told(server, "GET", "/session")
    assert (state["job"], state["hosts"]) == ("digits-1", ["algo-1", "algo-2"])
    _, kept = told(server, "POST", "/keep", json={"seconds": 7200})
    assert kept["ends_in_s"] > 7000
    assert told(server, "POST", "/keep", json={"seconds": -1})[0] == 400


def test_calls_are_listed_in_the_order_in_which_they_came(server):
    for id in ("first", "second"):
        ask(server, id)
    names = [row["id"] for row in told(server, "GET", "/calls")[1]]
    assert names.index("first") < names.index("second")


def test_slots_and_completions_are_told(server):
    assert told(server, "GET", "/slots", params={"num_cpus": 1})[1] == {"slots": 2}
    assert told(server, "POST", "/complete", json={"text": "alph"})[1] == {"matches": ["alpha", "alphabet"]}


def test_completions_of_what_is_not_there_are_none():
    assert completions("nothing.at", {}) == []
    assert "model.append(" in completions("model.app", {"model": []})


def test_files_go_in_and_out(server):
    assert (
        told(server, "PUT", "/files", params={"path": "a/b.bin"}, data=io.BytesIO(b"x" * 3_000_000))[1]["bytes"]
        == 3_000_000
    )
    assert told(server, "GET", "/files/size", params={"path": "a/b.bin"})[1] == {"bytes": 3_000_000}
    assert asked(server, "GET", "/files", params={"path": "a/b.bin"}) == (200, b"x" * 3_000_000)
    status, answer = told(server, "GET", "/files", params={"path": "nothing"})
    assert (status, "is not there" in answer["error"]) == (400, True)


def test_a_session_that_is_closing_takes_no_call(tmp_path):
    with served(tmp_path) as server:
        server.host.calls.closing = "it was closed"
        body = frame(to_json(CallRequest(kind=SHELL, name="f")), b"true")
        status, answer = told(server, "POST", "/calls/late", data=body)
        assert (status, answer["type"]) == (410, "SessionEnded")
        assert "closing (it was closed)" in answer["error"]


def test_who_closes_it_says_why(tmp_path):
    with served(tmp_path) as server:
        told(server, "POST", "/close", json={"why": "all done"})
        until(server.is_over.is_set)
    assert server.why == "all done"


def answered(server, path):
    """Return status, headers and body of one request."""

    async def go():
        async with proved(server) as session, session.get(f"http://127.0.0.1:{server.port}{path}") as got:
            return got.status, got.headers, await got.text()

    return asyncio.run(go())


@pytest.mark.parametrize("header", ["X: " + "x" * 64, f"Authorization: Bearer {TOKEN}", f"Cookie: token={TOKEN}"])
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


def test_no_answer_sets_a_cookie_or_has_the_token(server):
    for path in ("/session", "/nowhere"):
        _, headers, body = answered(server, path)
        assert "Set-Cookie" not in headers
        assert TOKEN not in f"{headers} {body}"


@needs_two_users
def test_another_user_gets_nothing_and_sees_no_token_in_ps(server):
    answers, shown = asked_by_another_user(server.port, ("GET", "/session", {}), ("GET", "/events", {}))
    assert [status for status, _ in answers] == [http.client.BadStatusLine.__name__] * 2
    assert "pytest" in shown
    assert TOKEN not in shown


def test_the_token_is_in_no_log(server, caplog):
    caplog.set_level(logging.DEBUG)
    assert answered(server, "/session")[0] == 200
    assert TOKEN not in caplog.text


def test_strangers_who_say_nothing_do_not_keep_clients_out(server):
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(MAX_HANDSHAKES + 20)
        ]
        assert answered(server, "/session")[0] == 200
        # The oldest one is gone: its greeting is all that it gets.
        strangers[0].settimeout(5)
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := strangers[0].recv(4096):
                heard += piece
        assert len(heard) <= len(GREETING) + 32

"""The connection to a session's server."""

import asyncio
import time

import cloudpickle
import pytest

from raysm.core.protocol.parcels import SMALL_BYTES, load
from raysm.errors import CredentialsExpired, InvalidRequest, ServiceError, SessionEnded
from raysm.features.session.client.wire import NoSuchCall
from raysm.features.session.protocol import CALL, CallRequest, Outcome, Versions
from tests.support.sessions import wired
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("by_value")


def test_a_refusal_is_an_error_of_its_kind_in_the_servers_words(server):
    with wired(server.port) as line:
        with pytest.raises(InvalidRequest, match="keep .*-1"):
            line.loop.run(line.wire.json("POST", "/keep", json={"seconds": -1}))
        with pytest.raises(NoSuchCall):
            line.loop.run(line.wire.request("GET", "/calls/unheard"))


def test_a_file_that_has_gone_is_an_error_and_not_the_content_of_another(server):
    async def content(wire):
        async with wire.stream("GET", "/files", params={"path": "gone.bin"}) as answer:
            return await answer.read()

    with wired(server.port) as line, pytest.raises(InvalidRequest, match=r"gone\.bin"):
        line.loop.run(content(line.wire), 60)


def asked(function, *args):
    request = CallRequest(kind=CALL, name="f", client="me", python=Versions.here().pickle_version)
    return request, [cloudpickle.dumps((function, args, {}))]


def value(answer):
    head, outcome = answer
    assert head["state"] == "done"
    return load(Outcome.decode(outcome).pickled)


def test_who_is_connected_is_attached_until_it_says_goodbye(server):
    with wired(server.port) as line:
        # A client that has not seen its connection open cannot say goodbye over it.
        line.loop.run(line.wire.call("hello", 20, *asked(abs, -1)), 60)
        assert server.host.state().clients == 1
    # A silent client would stay attached for 30 s.
    until(lambda: server.host.state().clients == 0, 20)


def test_a_client_that_is_connected_stays_attached_by_its_heartbeats(server):
    heard_s = server.host.lifetime._last_heartbeat_s
    with wired(server.port, client="beating"):
        first_s = until(lambda: heard_s.get("beating"), 60)
        until(lambda: heard_s["beating"] > first_s, 60)


async def cut(server):
    """Break all connections of a server's clients, as a tunnel does that is cut."""
    for connection in server.server._clients._connections:
        connection._socket._req.transport.abort()


def test_calls_are_answered_over_one_connection_each_once(server):
    with wired(server.port) as line:
        calls = [
            line.loop.start(line.wire.call(f"many-{n}", 20, *asked(abs, -n))) for n in range(1000)
        ]
        assert [value(call.result(60)) for call in calls] == [*range(1000)]
        assert value(line.loop.run(line.wire.call("many-3", 20, None), 60)) == 3
        assert server.remote.executed.count("many-3") == 1
        with pytest.raises(NoSuchCall):
            line.loop.run(line.wire.call("unheard", 20, None), 60)
        with pytest.raises(InvalidRequest, match="'dance'"):
            line.loop.run(line.wire.call("refused", 20, CallRequest(kind="dance", name="f")), 60)
        # Nothing is kept of a call that was given up.
        given_up = line.loop.start(line.wire.call("given up", 20, *asked(time.sleep, 1)))
        until(lambda: line.wire._exchange._answers)
        given_up.cancel()
        until(lambda: not line.wire._exchange._answers)


def test_an_answer_to_a_question_that_was_given_up_does_not_break_the_connection(server):
    with wired(server.port) as line:
        until(lambda: line.wire._exchange)
        exchange = line.wire._exchange
        given_up = line.loop.start(line.wire.call("left", 20, *asked(time.sleep, 0.2)))
        until(lambda: exchange._answers)
        given_up.cancel()
        until(
            lambda: (
                server.host.calls.get("left") is not None
                and server.host.calls.get("left").done.is_set()
            )
        )
        assert value(line.loop.run(line.wire.call("after", 20, *asked(abs, -1)), 60)) == 1
        assert line.wire._exchange is exchange


def test_a_session_that_is_closing_takes_no_more_calls(server):
    with wired(server.port) as line:
        server.host.calls.closing = "it was closed"
        try:
            with pytest.raises(SessionEnded, match="it was closed"):
                line.loop.run(line.wire.call("late", 20, *asked(abs, -1)), 60)
        finally:
            server.host.calls.closing = ""


def test_what_is_large_goes_the_other_way_in_both_directions(server):
    with wired(server.port) as line:
        until(lambda: line.wire._exchange)
        sent = line.wire.call("large-there", 20, *asked(len, bytes(4 * SMALL_BYTES)))
        assert value(line.loop.run(sent, 60)) == 4 * SMALL_BYTES
        brought = line.wire.call("large-back", 20, *asked(bytes, 4 * SMALL_BYTES))
        assert value(line.loop.run(brought, 60)) == bytes(4 * SMALL_BYTES)


def test_a_connection_that_is_cut_in_a_call_loses_nothing_and_repeats_nothing(server, tmp_path):
    def work(folder):
        with (folder / "ran").open("a") as file:
            file.write("x")
        while not (folder / "go").exists():
            time.sleep(0.01)
        return "the result"

    with wired(server.port) as line:
        until(lambda: line.wire._exchange)
        answer = line.loop.start(line.wire.call("cut", 20, *asked(work, tmp_path)))
        for _ in range(3):
            until(
                lambda: (
                    (tmp_path / "ran").exists()
                    and server.server._clients._connections
                    and line.wire._exchange
                )
            )
            before = line.wire._exchange
            asyncio.run_coroutine_threadsafe(cut(server), server.host.loop).result(60)
            until(lambda before=before: line.wire._exchange not in (None, before))
        (tmp_path / "go").touch()
        assert value(answer.result(60)) == "the result"
    assert (tmp_path / "ran").read_text() == "x"
    assert server.remote.executed.count("cut") == 1


def test_a_client_that_nobody_asks_stops_connecting_once_the_job_has_ended():
    asked = []

    def describe_end():
        asked.append(1)
        return "the session digits has ended: its driver was killed"

    with wired(1, describe_end=describe_end) as line:
        until(lambda: line.wire._listening.done())
        with pytest.raises(SessionEnded, match="driver was killed"):
            line.loop.run(line.wire.json("GET", "/session"), 60)
    assert len(asked) == 1


def test_the_address_is_asked_each_time_so_that_a_way_may_change(server):
    addresses = iter(["127.0.0.1:1"] * 3)
    with wired(
        lambda: next(addresses, f"127.0.0.1:{server.port}"), server_port=server.port
    ) as line:
        assert line.loop.run(line.wire.json("GET", "/session"), 60)["job"] == "digits-1"
        # Calls have their own connection, which is opened by the same addresses.
        assert value(line.loop.run(line.wire.call("changed", 20, *asked(abs, -1)), 60)) == 1


def unreachable():
    raise ServiceError("DescribeTrainingJob: the endpoint cannot be reached", is_transient=True)


def test_a_request_is_answered_once_the_network_is_back_that_the_service_was_behind_too(server):
    addresses, asked = iter(["127.0.0.1:1"] * 3), []

    def describe_end():
        asked.append(1)
        unreachable()

    way = {"server_port": server.port, "describe_end": describe_end}
    with wired(lambda: next(addresses, f"127.0.0.1:{server.port}"), **way) as line:
        assert line.loop.run(line.wire.json("GET", "/session"), 60)["job"] == "digits-1"
    assert asked


def credentials_expired():
    raise CredentialsExpired("the credentials have expired: aws sso login")


@pytest.mark.parametrize(
    ("describe_end", "kind", "reason"),
    [
        (lambda: None, ServiceError, "session's head has not answered .*though its job runs"),
        (unreachable, ServiceError, "endpoint cannot be reached"),
        (credentials_expired, CredentialsExpired, "aws sso login"),
    ],
)
def test_a_request_that_gets_no_answer_ends_after_some_time_with_the_reason(
    describe_end, kind, reason
):
    with (
        wired(1, describe_end=describe_end, retry_s=0.2) as line,
        pytest.raises(kind, match=reason),
    ):
        line.loop.run(line.wire.json("GET", "/session"), 60)


def test_a_request_ends_with_the_session_that_ends_while_it_waits():
    ended = "the session digits has ended: its job was stopped"
    answers = iter([None])
    with (
        wired(1, describe_end=lambda: next(answers, ended)) as line,
        pytest.raises(SessionEnded, match=ended),
    ):
        line.loop.run(line.wire.json("GET", "/session"), 60)


def test_a_request_whose_time_is_over_ends_with_the_end_of_the_session_if_there_is_one():
    ended = "the session digits has ended: its job was stopped"
    with (
        wired(1, describe_end=lambda: ended, retry_s=0.0) as line,
        pytest.raises(SessionEnded, match=ended),
    ):
        line.loop.run(line.wire.json("GET", "/session"), 60)

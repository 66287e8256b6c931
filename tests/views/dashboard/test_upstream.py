"""The way to the head, and what is asked by it."""

import asyncio
import contextlib
from functools import partial
from types import SimpleNamespace

import pytest

from raysm.errors import InvalidRequest
from raysm.views.dashboard.upstream import Upstream
from tests.support.dashboard_head import TOKEN, Answer, way_to


def read(way, *keys, token=TOKEN):
    """Return what the head answers, one after the other."""

    async def run():
        upstream = Upstream(way, token)
        try:
            return [await upstream.read(key) for key in keys]
        finally:
            await upstream.close()

    return asyncio.run(run())


def test_an_answer_is_read_whole_and_uncompressed(head):
    head.answers["long"] = Answer(b"x" * 300_000)
    assert read(partial(way_to, head), "long") == [b"x" * 300_000]
    assert head.requests[-1].headers["Accept-Encoding"] == "identity"


def test_one_way_is_opened_for_all_that_is_asked_and_closed_at_the_end(head):
    happened = []

    @contextlib.contextmanager
    def way():
        happened.append("open")
        yield SimpleNamespace(address=head.address)
        happened.append("close")

    read(way, "api/version", "api/version")
    assert happened == ["open", "close"]


def test_a_refusal_of_the_head_is_an_error(head):
    with pytest.raises(OSError, match="nowhere is answered with 404"):
        read(partial(way_to, head), "nowhere")
    with pytest.raises(OSError, match="api/version is answered with 401"):
        read(partial(way_to, head), "api/version", token="another")


def test_an_answer_that_breaks_off_is_an_error_as_a_head_that_is_away_is(head):
    head.answers["broken"] = Answer(b"x" * 1000, breaks=True)
    with pytest.raises(OSError, match="the answer to broken broke off"):
        read(partial(way_to, head), "broken")


def test_what_only_reads_is_tried_again_on_a_new_way(head):
    ways = [SimpleNamespace(address="127.0.0.1:1"), SimpleNamespace(address=head.address)]
    assert read(lambda: contextlib.nullcontext(ways.pop(0)), "api/version")[0].startswith(b'{"ray_version"')
    assert ways == []


def test_a_head_that_stays_away_is_an_error_after_some_attempts():
    opened = []

    def way():
        opened.append(1)
        return contextlib.nullcontext(SimpleNamespace(address="127.0.0.1:1"))

    with pytest.raises(ConnectionError):
        read(way, "api/version")
    assert len(opened) == 3


def test_a_way_that_is_refused_says_why():
    def way():
        raise InvalidRequest("the job lets nobody in")

    with pytest.raises(InvalidRequest, match="the job lets nobody in"):
        read(way, "api/version")


def test_redirects_are_not_followed(head):
    head.answers["away"] = Answer(b"", 302, (("Location", "http://192.0.2.1/"),))
    with pytest.raises(OSError, match="away is answered with 302"):
        read(partial(way_to, head), "away")
    assert head.paths() == ["away"]


@pytest.mark.parametrize("is_early", [True, False])
def test_what_a_page_asks_while_it_is_being_closed_gets_no_answer_and_opens_nothing(is_early):
    opened = []

    def way():
        opened.append(1)
        return contextlib.nullcontext(SimpleNamespace(address="127.0.0.1:1"))

    async def run():
        upstream = Upstream(way, TOKEN)
        if is_early:
            await upstream.close()
        asking = asyncio.create_task(upstream.read("api/version"))
        while not is_early and not opened:
            await asyncio.sleep(0)
        await upstream.close()
        with pytest.raises(ConnectionError, match="the dashboard was closed"):
            await asking

    asyncio.run(run())
    assert len(opened) == (0 if is_early else 1)


def test_what_waits_for_a_head_that_is_silent_gets_no_answer_once_nobody_is_asked_any_more():
    async def run():
        came = asyncio.Event()

        async def say_nothing(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            came.set()
            # Until the other side goes.
            await reader.read()
            writer.close()

        async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
            address = "{}:{}".format(*server.sockets[0].getsockname())
            upstream = Upstream(lambda: contextlib.nullcontext(SimpleNamespace(address=address)), TOKEN)
            asking = asyncio.create_task(upstream.read("api/version"))
            await came.wait()
            upstream.leave()
            with pytest.raises(ConnectionError, match="the dashboard was closed"):
                await asyncio.wait_for(asking, 30)
            await upstream.close()

    asyncio.run(run())


def test_an_answer_that_comes_in_the_very_turn_in_which_its_reader_is_ended_is_closed(head):
    closed = []

    class Racing(Upstream):
        def _request(self, route, message):
            async def send():
                reading.cancel()
                return SimpleNamespace(close=lambda: closed.append(message.key))

            return send()

    async def run():
        nonlocal reading
        upstream = Racing(partial(way_to, head), TOKEN)
        reading = asyncio.create_task(upstream.read("api/jobs/"))
        await asyncio.wait([reading])
        await upstream.close()

    reading = None
    asyncio.run(run())
    assert reading.cancelled()
    assert closed == ["api/jobs/"]

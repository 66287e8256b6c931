"""What users are told of the dashboard, and how it is asked for."""

import asyncio
import select
import socket
import threading
import time

import pytest

from raysm.bootstrap.dashboard import announce_dashboard, await_dashboard, await_start
from raysm.bootstrap.dashboard_reader import read_dashboard
from raysm.contract.events import parse
from raysm.errors import ForeignListener
from tests.support.another_user import NOBODY, needs_two_users, thief
from tests.support.dashboard_head import serving_head


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_its_address_is_told(capsys):
    announce_dashboard("algo-1", "10.0.0.1", 8265)
    told = parse(capsys.readouterr().out)
    assert (told.name, told.host, told.address) == ("dashboard", "algo-1", "http://10.0.0.1:8265")


def test_one_that_refuses_for_lack_of_the_token_is_there(capsys):
    with serving_head() as head:
        assert asyncio.run(await_dashboard(head.port))
    assert not capsys.readouterr().err


def test_the_first_question_waits_until_the_dashboard_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_late, args=[listener])
        thread.start()
        assert asyncio.run(await_dashboard(listener.getsockname()[1]))
        thread.join()


def answer_late(listener):
    select.select([listener], [], [])
    # It is in the queue, and nothing is said to it until the dashboard is there.
    time.sleep(0.3)
    caller, _ = listener.accept()
    with caller:
        caller.recv(1000)
        caller.sendall(b"HTTP/1.0 401 Unauthorized\r\n\r\n")


def test_who_asks_for_it_early_is_seen_by_its_log(tmp_path):
    async def live():
        waiting = asyncio.create_task(await_start(tmp_path, 600.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        (tmp_path / "dashboard.log").touch()
        async with asyncio.timeout(60):
            await waiting

    asyncio.run(live())


def test_where_nobody_asks_for_it_it_is_wanted_after_a_while(tmp_path):
    asyncio.run(await_start(tmp_path / "gone", 0.05))
    asyncio.run(await_start(tmp_path / "gone", 0.0))


def test_one_that_never_comes_up_is_told_too(capsys):
    assert not asyncio.run(await_dashboard(free_port(), limit_s=0.1))
    said = capsys.readouterr()
    assert said.err == "raysm: the dashboard has not come up within 0.1 s; the job goes on without it\n"
    assert not said.out


@needs_two_users
def test_a_port_that_another_user_has_is_neither_announced_nor_sent_the_token(capsys):
    port = free_port()
    with thief(port) as other:
        other.await_port(port)
        assert not announce_dashboard("algo-1", "127.0.0.1", port)
        assert not asyncio.run(await_dashboard(port))
        with pytest.raises(ForeignListener):
            asyncio.run(read_dashboard(port, "secret", "nodes?view=summary"))
        assert other.end() == ""
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count(f"another user (uid {NOBODY}) listens at 127.0.0.1, port {port}") == 2

"""What users are told of the dashboard, and how it is asked for."""

import asyncio
import socket
import threading

from raysm.bootstrap.dashboard import announce_dashboard, await_dashboard, await_start
from raysm.bootstrap.doorbell import await_caller
from raysm.contract.events import parse
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


def test_asking_starts_it_and_what_keeps_its_port_is_not_taken_for_it():
    port, heads = free_port(), []

    def start_when_asked():
        await_caller("127.0.0.1", port)
        heads.append(serving_head(port))
        heads[0].__enter__()

    thread = threading.Thread(target=start_when_asked)
    thread.start()
    try:
        assert asyncio.run(await_dashboard(port))
        assert heads
    finally:
        thread.join()
        heads[0].__exit__(None, None, None)


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

"""An event loop beside the one that may have to wait."""

import asyncio
import threading

import pytest

from raysm.contract.loop_thread import LoopThread, bound_to_this_loop


@pytest.fixture
def there():
    thread = LoopThread("there")
    yield thread
    thread.close()
    assert "there" not in [each.name for each in threading.enumerate()]


async def name_of_thread():
    return threading.current_thread().name


async def wait_for_ever(ended):
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


def test_calls_come_in_their_order_and_back_in_the_loop_that_asked(there):
    heard = []

    async def scenario():
        done = asyncio.Event()

        def hear(number):
            heard.append((number, threading.current_thread()))
            if number == 99:
                done.set()

        call_back = bound_to_this_loop(hear)
        for number in range(100):
            there.call(call_back, number)
        await asyncio.wait_for(done.wait(), 20)

    asyncio.run(scenario())
    assert heard == [(number, threading.current_thread()) for number in range(100)]


def test_closing_ends_what_runs_there():
    thread, ended = LoopThread("closing"), threading.Event()

    thread.call(lambda: asyncio.ensure_future(wait_for_ever(ended)) and None)
    asyncio.run(thread.carry_out(name_of_thread()))
    thread.close()
    assert ended.is_set()


def test_work_that_takes_too_long_is_ended(there):
    ended = threading.Event()

    with pytest.raises(TimeoutError):
        there.run(wait_for_ever(ended), 0.05)
    assert ended.wait(60)

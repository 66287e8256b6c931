"""An event loop in a thread of its own."""

import asyncio
import threading

import pytest

from raysm.client.session.loop import Loop


@pytest.fixture
def loop():
    running = Loop("a loop")
    yield running
    running.close()


def test_work_runs_there_and_its_value_comes_back(loop):
    async def where():
        return threading.current_thread().name

    assert loop.run(where()) == "a loop"


def test_what_work_raises_is_raised_here(loop):
    async def fails():
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.run(fails())


def test_work_that_takes_too_long_is_ended(loop):
    ended = threading.Event()

    async def waits():
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        loop.run(waits(), 0.05)
    assert ended.wait(60)


def test_what_still_runs_ends_with_the_loop(loop):
    begun, ended = threading.Event(), threading.Event()

    async def waits():
        try:
            begun.set()
            await asyncio.sleep(600)
        finally:
            ended.set()

    loop.start(waits())
    assert begun.wait(60)
    loop.close()
    loop.close()
    assert ended.is_set()

"""The page of a dashboard that is not there yet, without a browser and without a head."""

import asyncio
from types import SimpleNamespace

import pytest

from raysm.views.dashboard.parts import PageRequest
from raysm.views.dashboard.waiting_page import PAGE, READY, WaitingPage


def asked(path, method="GET"):
    return PageRequest(path=path, query="", request=SimpleNamespace(method=method))


class Head:
    """Is reached when the test says so; ``attempts`` are those to reach it."""

    def __init__(self):
        self.up, self.attempts, self.error = asyncio.Event(), 0, None

    async def reach(self):
        self.attempts += 1
        await self.up.wait()
        if self.error:
            raise self.error


def trying(steps):
    """Run ``steps(page, head)`` in a loop of its own."""

    async def run():
        head = Head()
        page = WaitingPage("digits <1>", head.reach, patience_s=0.01)
        await steps(page, head)
        await page.end()

    asyncio.run(run())


def test_who_comes_too_early_gets_a_page_at_once_which_asks_when_the_head_is_there():
    async def steps(page, head):
        answer = await page.answer(asked(PAGE))
        assert answer.status == 200
        assert answer.content_type == "text/html"
        assert "digits &lt;1&gt;" in answer.text
        assert f'fetch("{READY}"' in answer.text
        assert answer.headers["Cache-Control"] == "no-store"

    trying(steps)


def test_it_is_told_once_the_head_is_there_and_its_own_page_is_another_parts():
    async def steps(page, head):
        await page.answer(asked(PAGE))
        ready = asyncio.create_task(page.answer(asked(READY)))
        await asyncio.sleep(0)
        assert not ready.done()
        head.up.set()
        assert (await ready).status == 204
        assert await page.answer(asked(PAGE)) is None
        assert head.attempts == 1

    trying(steps)


def test_of_a_head_that_is_up_nobody_sees_a_page_that_waits():
    async def steps(page, head):
        head.up.set()
        assert await page.answer(asked(PAGE)) is None

    trying(steps)


def test_of_a_head_that_cannot_be_reached_another_part_says_why_and_the_next_page_tries_anew():
    async def steps(page, head):
        head.error = OSError("away")
        head.up.set()
        assert (await page.answer(asked(READY))).status == 204
        assert await page.answer(asked(PAGE)) is None
        head.error = None
        assert await page.answer(asked(PAGE)) is None
        assert head.attempts == 2

    trying(steps)


@pytest.mark.parametrize(("path", "method"), [("api/jobs/", "GET"), ("static/x.js", "GET"), (PAGE, "POST")])
def test_all_else_is_another_parts(path, method):
    async def steps(page, head):
        assert await page.answer(asked(path, method)) is None
        assert head.attempts == 0

    trying(steps)


def test_an_end_while_it_waits_leaves_nothing_behind():
    async def steps(page, head):
        assert (await page.answer(asked(PAGE))).status == 200
        await page.end()
        assert len(asyncio.all_tasks()) == 1

    trying(steps)

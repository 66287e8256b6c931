"""Which process does which call."""

import asyncio
import itertools

import pytest

from raysm.workloads.session.processes import Crew

WAIT_S = 300.0
FOR_EVER_S = 1e6


class Started:
    """A Crew whose processes are numbers.

    Attributes: crew, ended (processes), begun (how many were), error (why none can be).
    """

    def __init__(self, width, patience_s=FOR_EVER_S, idle_s=FOR_EVER_S):
        self.numbers, self.ended, self.begun, self.error = itertools.count(1), [], 0, None
        self.gate = asyncio.Event()
        self.gate.set()
        self.crew = Crew(width, self.start, self.ended.append, patience_s=patience_s, idle_s=idle_s)

    async def start(self):
        self.begun += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return next(self.numbers)


def run(script):
    return asyncio.run(asyncio.wait_for(script(), WAIT_S))


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


async def entering(crew, *ids):
    tasks = [asyncio.create_task(crew.enter(id)) for id in ids]
    await settled()
    return tasks


def test_no_more_processes_than_its_width_are_started_while_calls_get_on():
    async def script():
        started, order = Started(2), []

        async def call(number):
            process = await started.crew.enter(str(number))
            order.append(number)
            await asyncio.sleep(0)
            started.crew.leave(process)
            return process

        processes = {*await asyncio.gather(*(call(number) for number in range(500)))}
        return processes, started.begun, order == sorted(order)

    assert run(script) == ({1, 2}, 2, True)


def test_one_call_at_a_time_needs_one_process_and_finds_the_one_that_was_prepared():
    async def script():
        started = Started(8)
        started.crew.prepare()
        await settled()
        for number in range(20):
            started.crew.leave(await started.crew.enter(str(number)))
        return started.begun, started.crew.size

    assert run(script) == (1, 1)


def test_calls_that_come_while_a_process_starts_do_not_start_one_each():
    async def script():
        started = Started(3)
        started.gate.clear()
        started.crew.prepare()
        await entering(started.crew, "a")
        one = started.begun
        await entering(started.crew, "b", "c", "d", "e")
        started.crew.close()
        return one, started.begun

    assert run(script) == (1, 3)


@pytest.mark.parametrize("count", [3, 50])
def test_calls_that_wait_for_one_another_all_have_a_process(count):
    async def script():
        started, inside, everybody = Started(2, patience_s=0.001), 0, asyncio.Event()

        async def call(number):
            nonlocal inside
            process = await started.crew.enter(str(number))
            inside += 1
            if inside == count:
                everybody.set()
            await everybody.wait()
            started.crew.leave(process)

        await asyncio.gather(*(call(number) for number in range(count)))
        return started.begun, started.crew.size

    assert run(script) == (count, count)


def test_short_calls_get_on_beside_long_ones_that_hold_all_processes_there_were():
    async def script():
        started = Started(2, patience_s=0.001)
        long = [await task for task in await entering(started.crew, "long 1", "long 2")]
        others = set()
        for number in range(20):
            process = await started.crew.enter(str(number))
            others.add(process)
            started.crew.leave(process)
        return long, others

    # One at a time they need one more.
    assert run(script) == ([1, 2], {3})


def test_a_process_too_many_ends_when_it_was_free_for_a_while():
    async def script():
        started = Started(1, patience_s=0.001, idle_s=0.01)

        async def call(number):
            process = await started.crew.enter(str(number))
            await asyncio.sleep(0.1)
            started.crew.leave(process)

        await asyncio.gather(*(call(number) for number in range(3)))
        while started.crew.size > 1:
            await asyncio.sleep(0.01)
        return started.begun, len(started.ended)

    begun, ended = run(script)
    assert begun == ended + 1 == 3


def test_who_is_turned_away_does_not_come_in_and_takes_nobodys_place():
    async def script():
        started = Started(1)
        first, second, third = await entering(started.crew, "a", "b", "c")
        started.crew.turn_away("b")
        started.crew.turn_away("unheard")
        process = await first
        assert await second is None
        started.crew.leave(process)
        return process, await third

    assert run(script) == (1, 1)


def test_who_is_cancelled_as_its_turn_comes_leaves_the_process_to_the_next():
    async def script():
        started = Started(1)
        first, second, third = await entering(started.crew, "a", "b", "c")
        started.crew.leave(await first)
        # Its turn has come, and it has not seen it yet.
        second.cancel()
        kept = await third, second.cancelled()
        # One that is lost is replaced for the next.
        (fourth,) = await entering(started.crew, "d")
        started.crew.lose(kept[0])
        return *kept, await fourth, started.crew.size

    assert run(script) == (1, True, 2, 1)


def test_where_none_can_be_started_each_that_waits_is_told_so():
    async def script():
        started = Started(2)
        started.error = RuntimeError("no memory")
        calls = await entering(started.crew, "a", "b", "c")
        return [str(error) for error in await asyncio.gather(*calls, return_exceptions=True)], started.begun

    assert run(script) == (["no memory"] * 3, 3)

"""Which process does which call."""

import asyncio
import itertools

from raysm.workloads.session.processes import Crew

WAIT_S = 300.0
FOR_EVER_S = 1e6


class Started:
    """A Crew whose processes are numbers."""

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


def test_where_none_can_be_started_each_that_waits_is_told_so():
    async def script():
        started = Started(2)
        started.error = RuntimeError("no memory")
        calls = await entering(started.crew, "a", "b", "c")
        return [str(error) for error in await asyncio.gather(*calls, return_exceptions=True)], started.begun

    assert run(script) == (["no memory"] * 3, 3)

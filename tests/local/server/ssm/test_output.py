"""What a command writes, read no faster than it is taken."""

import asyncio
import os
import pty

import pytest

from raysm.local.server.ssm.output import Output

WAIT_S = 60


def reading(scenario, opened=os.pipe):
    """Run a scenario with the end that is read, and the one that is written to."""

    async def run():
        reader, writer = opened()
        output = Output(reader)
        try:
            async with asyncio.timeout(WAIT_S):
                return await scenario(output, writer)
        finally:
            output.close()

    return asyncio.run(run())


async def all_of(output):
    parts = []
    while part := await output.read():
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("opened", [os.pipe, pty.openpty])
def test_what_was_written_is_read_when_the_writer_has_gone(opened):
    async def scenario(output, writer):
        os.write(writer, b"abc" * 1000)
        os.close(writer)
        return await all_of(output)

    assert reading(scenario, opened) == b"abc" * 1000


def test_it_waits_for_the_next_byte():
    async def scenario(output, writer):
        waiting = asyncio.ensure_future(output.read())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        os.write(writer, b"x")
        assert await waiting == b"x"
        os.close(writer)

    reading(scenario)


def test_no_more_than_one_message_is_read_at_a_time():
    async def scenario(output, writer):
        os.write(writer, bytes(3000))
        lengths = [len(await output.read()) for _ in range(3)]
        os.close(writer)
        return lengths

    assert reading(scenario) == [1024, 1024, 952]


def test_silence_is_the_end_where_a_writer_stays():
    async def scenario(output, writer):
        reading_all = asyncio.ensure_future(all_of(output))
        os.write(writer, b"abc")
        await asyncio.sleep(0.02)
        output.end_by_silence(0.01)
        got = await reading_all
        os.close(writer)
        return got

    assert reading(scenario) == b"abc"


def test_what_is_there_is_read_however_late():
    # The loop is held up for longer than the silence that is the end: what came meanwhile is not silence.
    async def scenario(output, writer):
        output.end_by_silence(0.0)
        os.write(writer, bytes(5000))
        got = await all_of(output)
        os.close(writer)
        return len(got)

    assert reading(scenario) == 5000

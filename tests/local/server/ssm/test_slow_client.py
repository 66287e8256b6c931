"""A command at the agent's end, with a client that takes its time."""

import asyncio
import os
from concurrent.futures import Future

import pytest

from raysm.contract.ssm.frames import Flag, Frame, PayloadType, flag
from raysm.local.instances.base import Visit
from raysm.local.server.ssm.command import Command
from raysm.local.server.ssm.plugin import Ends
from tests.support.ssm import Here

WAIT_S = 60
OUTPUT = os.urandom(40_000).replace(b"\n", b" ")
"""Less than a pipe holds: the command can end before anything of it was read."""


class Ended(Here):
    """An instance in which a command writes, and has ended by then; ``lingering`` keeps what it wrote to open."""

    def __init__(self, written=OUTPUT, *, lingering=False, code=0):
        super().__init__()
        self.written, self.lingering, self.code = written, lingering, code
        self.left, self.open = 0, []

    def enter(self, command, *, stdin, stdout):
        writer = os.open(stdout, os.O_WRONLY | os.O_NOCTTY)
        os.write(writer, self.written)
        exited = Future()
        if self.code is not None:
            exited.set_result(self.code)
        if self.lingering:
            self.open.append(writer)
        else:
            os.close(writer)
        return Visit(exited=exited, leave=self.leave)

    def leave(self):
        self.left += 1


def ran(instance, send, then=None):
    async def run():
        command = Command(Ends(instance=instance, send=send), ["x"], has_terminal=False, silence_s=0.01)
        running = asyncio.ensure_future(command.run())
        async with asyncio.timeout(WAIT_S):
            if then is not None:
                await then(command)
            await running
        await command.close()

    asyncio.run(run())
    for descriptor in instance.open:
        os.close(descriptor)


@pytest.mark.parametrize("lingering", [False, True])
def test_a_client_that_takes_longer_than_the_command_gets_all_of_it(lingering):
    got = []

    async def slowly(kind, data):
        await asyncio.sleep(0.02)  # for each message more than the silence that is the end
        got.append(data)

    ran(Ended(lingering=lingering), slowly)
    assert b"".join(got) == OUTPUT


def test_the_end_of_the_session_ends_a_command_that_goes_on():
    instance = Ended(code=None, lingering=True)

    async def take(kind, data):
        pass

    async def hang_up(command):
        await command.take(
            Frame(type="input_stream_data", payload_type=PayloadType.FLAG, payload=flag(Flag.TERMINATE_SESSION))
        )

    ran(instance, take, hang_up)
    assert instance.left == 1


def test_the_end_of_the_session_ends_what_nobody_takes():
    stuck = asyncio.Event()

    async def never(kind, data):
        stuck.set()
        await asyncio.Event().wait()

    async def hang_up(command):
        await stuck.wait()
        await command.close()

    ran(Ended(), never, hang_up)

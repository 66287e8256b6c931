"""A command at the agent's end: its output, its terminal, its end, with this machine in the instance's place."""

import asyncio
import json
import os

import pytest

from raysm.contract.ssm.frames import OUTPUT, Flag, Frame, PayloadType, flag
from raysm.local.server.ssm.command import Command
from raysm.local.server.ssm.plugin import Ends
from tests.support.ssm import Entered

WAIT_S = 60


class Noting(Entered):
    """Keeps what commands were to read."""

    def enter(self, command, *, stdin, stdout):
        self.stdin = stdin
        return super().enter(command, stdin=stdin, stdout=stdout)


class Sitting:
    """Somebody before a command: what it has written, and his frames to it."""

    def __init__(self, *command, has_terminal=True):
        self.written, self.changed = b"", asyncio.Event()
        self.instance = Noting()
        self.command = Command(
            Ends(instance=self.instance, send=self.send), ["sh", "-c", *command], has_terminal=has_terminal
        )

    async def send(self, payload_type, payload):
        assert payload_type == PayloadType.OUTPUT
        self.written += payload
        self.changed.set()

    async def until(self, text):
        while text not in self.written:
            self.changed.clear()
            await self.changed.wait()

    async def give(self, payload, payload_type=PayloadType.OUTPUT):
        await self.command.take(Frame(type=OUTPUT, payload_type=payload_type, payload=payload))


def run(scenario):
    async def within():
        async with asyncio.timeout(WAIT_S):
            return await scenario()

    return asyncio.run(within())


@pytest.mark.parametrize("has_terminal", [True, False])
def test_all_that_it_writes_is_sent_before_its_end(has_terminal):
    async def scenario():
        sitting = Sitting("echo out; echo err >&2", has_terminal=has_terminal)
        await sitting.command.run()
        await sitting.command.close()
        return sitting.written.split()

    assert run(scenario) == [b"out", b"err"]


def test_without_a_terminal_it_reads_nothing():
    async def scenario():
        sitting = Sitting("cat; echo end", has_terminal=False)
        await sitting.command.run()
        return sitting.written, sitting.instance.stdin

    assert run(scenario) == (b"end\n", os.devnull)


def test_keys_reach_it_and_its_terminal_answers():
    async def scenario():
        sitting = Sitting('stty -echo; echo ready; read line; echo "got $line"')
        running = asyncio.ensure_future(sitting.command.run())
        await sitting.until(b"ready")
        await sitting.give(b"abc\r")
        await running
        await sitting.command.close()
        return sitting.written

    assert run(scenario).endswith(b"got abc\r\n")


def test_it_sees_the_size_of_the_users_terminal():
    async def scenario():
        sitting = Sitting("echo ready; until stty size | grep -qx '40 120'; do sleep 0.01; done; echo seen")
        running = asyncio.ensure_future(sitting.command.run())
        await sitting.until(b"ready")
        for wrong in (b"no json", b"[]", b'{"rows": "many", "cols": 1}', b"{}"):
            await sitting.give(wrong, PayloadType.SIZE)
        await sitting.give(json.dumps({"rows": 40, "cols": 120}).encode(), PayloadType.SIZE)
        await sitting.until(b"seen")
        await running

    run(scenario)


def test_who_terminates_the_session_does_not_wait_for_its_end():
    async def scenario():
        sitting = Sitting("echo ready; sleep 600")
        running = asyncio.ensure_future(sitting.command.run())
        await sitting.until(b"ready")
        await sitting.give(flag(Flag.TERMINATE_SESSION), PayloadType.FLAG)
        await running
        await sitting.command.close()
        await sitting.command.close()

    run(scenario)


def test_what_it_left_in_the_background_does_not_hold_its_session():
    async def scenario():
        sitting = Sitting("sleep 600 & echo $!", has_terminal=False)
        await sitting.command.run()
        os.kill(int(sitting.written), 9)

    run(scenario)


def test_keys_after_its_end_are_passed_over():
    async def scenario():
        sitting = Sitting("true")
        await sitting.command.run()
        await sitting.give(b"late")
        await sitting.give(json.dumps({"rows": 1, "cols": 1}).encode(), PayloadType.SIZE)

    run(scenario)

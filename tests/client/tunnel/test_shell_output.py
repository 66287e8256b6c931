"""A command before the user's terminal, with a scripted agent at the other end."""

import asyncio
import contextlib
import os
import re
import signal
import threading
from types import SimpleNamespace

import pytest

from raysm.client.tunnel.session import COMMAND, Document
from raysm.client.tunnel.shell import ENCRYPTION, Shell, Terminal, run_by_plugin
from raysm.contract.ssm.frames import CHANNEL_CLOSED, notice
from raysm.errors import ServiceError
from tests.support.scripted_agent import ScriptedAgent

WAIT_S = 60


class Saying(ScriptedAgent):
    """An agent that says what a test says, and then the mark of the command's end."""

    def __init__(self, said, *, code=0, marked=True):
        super().__init__(outputs=[said], last=notice(CHANNEL_CLOSED, Output="bye"))
        self.said, self.code, self.marked = said, code, marked

    async def start(self, target, document):
        entry = await super().start(target, document)
        nonce = re.search(r"([0-9a-f]{16}) ", document.parameters["command"][0])[1]
        mark = f"\x1e{nonce}:{self.code}\x1e".encode() if self.marked else b""
        whole = self.said + mark
        self.outputs = [whole[start : start + 1000] for start in range(0, len(whole), 1000)]
        return entry


def ran(agent, terminal):
    async def run():
        async with asyncio.timeout(WAIT_S), agent.served():
            return await Shell(agent, terminal, ["x"]).run("target")

    return asyncio.run(run())


@pytest.fixture
def pipe():
    """A pipe in place of stdout: what reads it, and what writes to it."""
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):  # a test may have closed it
            os.close(descriptor)


def read_slowly(reader):
    parts = []

    def read():
        while part := os.read(reader, 500):
            parts.append(part)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, parts


@pytest.mark.parametrize("blocking", [True, False])
def test_all_of_a_large_output_is_shown_though_the_agent_ends_at_once(pipe, blocking):
    reader, writer = pipe
    os.set_blocking(writer, blocking)
    said = os.urandom(300_000).replace(b"\x1e", b" ")
    thread, parts = read_slowly(reader)
    assert ran(Saying(said, code=7), Terminal(stdin=reader, stdout=writer)) == 7
    os.close(writer)
    thread.join(WAIT_S)
    assert b"".join(parts) == said


def test_where_nobody_reads_any_more_it_ends_as_a_command_does(pipe):
    reader, writer = pipe
    os.close(reader)
    with open(os.devnull) as nothing:
        terminal = Terminal(stdin=nothing.fileno(), stdout=writer)
        assert ran(Saying(b"x" * 100_000), terminal) == 128 + signal.SIGPIPE


def test_a_session_that_ends_before_the_command_does_says_so_and_shows_what_came(pipe):
    reader, writer = pipe
    with pytest.raises(ServiceError, match="the session ended before the command did: bye"):
        ran(Saying(b"half a lin", marked=False), Terminal(stdin=reader, stdout=writer))
    os.close(writer)
    assert os.read(reader, 100) == b"half a lin"


def test_the_command_is_run_by_the_document_for_it(pipe):
    agent = Saying(b"")
    ran(agent, Terminal(stdin=pipe[0], stdout=pipe[1]))
    assert [document.name for document in agent.documents] == [COMMAND]


class Encrypted(ScriptedAgent):
    """An agent of an account that encrypts shells; a plugin has them all the same."""

    def __init__(self):
        super().__init__([{"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "k"}}])
        self.terminated = []
        self.service = SimpleNamespace(
            region="eu-west-1",
            profile="",
            client=lambda name: SimpleNamespace(meta=SimpleNamespace(endpoint_url="https://x")),
        )

    def request(self, target, document):
        return {"Target": target, "DocumentName": document.name, "Parameters": document.parameters}

    async def terminate(self, session):
        self.terminated.append(session)


class Plugin:
    """Notes with what it was run."""

    def __init__(self):
        self.ran = []

    def run(self, entry, request, **where):
        self.ran.append((entry.session, request["Parameters"], where))
        return 0


def test_a_shell_that_the_account_encrypts_is_refused_with_its_code(pipe):
    with pytest.raises(ServiceError, match="wants KMSEncryption.*install AWS's own plugin") as refused:
        ran(Encrypted(), Terminal(stdin=pipe[0], stdout=pipe[1]))
    assert refused.value.code == ENCRYPTION


def test_the_plugin_carries_a_session_of_its_own_and_it_is_ended():
    agent, plugin = Encrypted(), Plugin()
    agent.port = 1
    document = Document(name=COMMAND, parameters={"command": ["sh"]})
    assert run_by_plugin(plugin, agent, "target", document) == 0
    assert plugin.ran == [("s-1", {"command": ["sh"]}, {"region": "eu-west-1", "profile": "", "endpoint": "https://x"})]
    assert agent.terminated == ["s-1"]

"""Workers of a job that speak the protocol of the control channel, without Ray and without processes.

A thousand of them run in one event loop, against a head of ``tests.support.bootstraps``.
"""

import asyncio
import contextlib
import hashlib
import json
import random
import time
from dataclasses import dataclass, field

from raysm.core.protocol.control_line import MAX_LINE, ProtocolError
from raysm.core.protocol.stacks import ProcessStack, pack
from raysm.instance import control
from raysm.instance import lifecycle as life
from raysm.instance.address import backoff
from raysm.instance.control import MessageReceived
from raysm.instance.outputs import in_pieces, model_key

LOOPBACK = "127.0.0.1"
CONTENT = b"an output"
PUBLISH_S = 0.05
STACKS = "{}\n" + pack([ProcessStack(host="algo", pid=1, role="rank 0")])
"""A member's answer when the head asks for its stacks."""


@dataclass
class Member:
    """One worker, from its first attempt to connect until it has left or is lost."""

    members: "Members"
    name: str
    joined_s: float | None = None
    attempts: int = 0
    line: control.WorkerControl | None = None
    running: asyncio.Task | None = None
    ended: str = ""
    """``left``, ``lost`` or ``frozen``; empty while it is a member."""
    answers: asyncio.Queue = field(default_factory=asyncio.Queue)
    tasks: set = field(default_factory=set)

    async def join(self):
        """Connect as a worker does, again after each failure."""
        while self.line is None:
            try:
                self.line = await control.join(
                    lambda: asyncio.open_connection(
                        LOOPBACK, self.members.instance.ports.control, limit=MAX_LINE
                    ),
                    token=self.members.instance.payload.token(),
                    host=self.name,
                    head=self.members.instance.head,
                    identity=self.members.instance.identity,
                    silence_s=600.0,
                )
            except (TimeoutError, OSError, ProtocolError):
                await asyncio.sleep(backoff(self.attempts))
                self.attempts += 1
        self.joined_s = time.monotonic()
        self.running = asyncio.create_task(self.line.run(self._on_report))

    def _on_report(self, report):
        match report:
            case life.Lost():
                self.ended = self.ended or "lost"
                self.answers.put_nowait(None)
                return
            case MessageReceived(_, message):
                pass
        match control.decode(message, control.TO_WORKER):
            case life.Invited():
                self.members.register(self.name)
            case control.StacksWanted(number):
                self.line.tell(control.encode(control.StacksPart("", number, STACKS, True)))
            case life.OutputsTaken() as taken:
                self.answers.put_nowait(taken)
            case life.JobEnded():
                task = asyncio.create_task(self._leave())
                self.tasks.add(task)

    async def _leave(self):
        """Ask about the outputs, describe those that nobody else has, and say goodbye."""
        names = [f"{self.name}/{number}.bin" for number in range(self.members.outputs)]
        keys = {model_key(name): name for name in names}
        for piece in in_pieces(keys):
            size = len(CONTENT) * len(names)
            self.line.tell(control.encode(control.OutputsClaimed("", tuple(piece), size)))
            taken = await self.answers.get()
            for key in taken.undescribed if taken else ():
                digest = hashlib.sha256(CONTENT).hexdigest()
                self.line.tell(control.encode(control.FileLeft(keys[key], len(CONTENT), digest)))
        self.ended = self.ended or "left"
        await self.line.leave()

    async def lose(self):
        """End the connection without a goodbye, as the kernel does for a dead process."""
        self.ended = "lost"
        self.running.cancel()
        self.line._peer.line.abort()

    async def freeze(self):
        """Send nothing any more, and leave the connection open."""
        self.ended = "frozen"
        self.running.cancel()

    async def close(self):
        for task in [*self.tasks, *([self.running] if self.running else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.line:
            self.line._peer.line.abort()


class Members:
    """All workers of ``cluster``, whose head is started elsewhere.

    Args:
        cluster: A ``bootstraps.Cluster``; only its head has files.
        outputs: Files of the result that each member says it has.
        register_s: Seconds within which their Ray nodes register, once they are invited.
    """

    def __init__(self, cluster, *, outputs=0, register_s=0.0):
        self.instance = cluster.prepare(cluster.hosts[0])
        self.outputs = outputs
        self.members = {name: Member(self, name) for name in cluster.hosts[1:]}
        self._register_s = register_s
        self._nodes = {}
        self._file = cluster.folder / "simulated.nodes"
        self._publishing = None
        self.registered_s = 0.0
        """When the last Ray node was registered."""

    async def join(self):
        """Let all connect in the same moment; return when each is a member."""
        await asyncio.gather(*(member.join() for member in self.members.values()))

    def register(self, name):
        """Register the Ray node of a member; the nodes of a moment are written together."""
        loop = asyncio.get_running_loop()
        loop.call_later(random.uniform(0, self._register_s), self._add, name)

    def _add(self, name):
        self._nodes[name] = {"id": hashlib.sha256(name.encode()).hexdigest(), "address": LOOPBACK}
        if self._publishing is None:
            loop = asyncio.get_running_loop()
            self._publishing = loop.call_later(PUBLISH_S, self._publish)

    def _publish(self):
        self._publishing = None
        beside = self._file.with_suffix(".partial")
        beside.write_text(json.dumps(self._nodes))
        beside.replace(self._file)
        self.registered_s = time.monotonic()

    async def wait_until_over(self, timeout_s):
        """Wait until each has left, was lost or frozen."""
        async with asyncio.timeout(timeout_s):
            while any(not member.ended for member in self.members.values()):
                await asyncio.sleep(0.05)

    async def close(self):
        if self._publishing is not None:
            self._publishing.cancel()
        for member in self.members.values():
            await member.close()

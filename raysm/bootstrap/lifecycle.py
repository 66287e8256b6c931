"""Events that happen to an instance, decisions that follow from them, and the queue of events.

``membership`` (the head's policy) and ``member`` (a worker's policy) take events and return decisions. ``head`` and
``worker`` produce the events and carry out the decisions.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from raysm.contract.result import Failure


@dataclass(frozen=True, slots=True)
class Node:
    """A Ray node that is alive."""

    node_id: str
    """Ray's id, hex; a restarted raylet gets a new one."""
    address: str
    """Its IP address, as Ray's other nodes use it."""


# Events of the head and of workers


# The service sends it to all instances at once, so they do not wait for the head.
@dataclass(frozen=True, slots=True)
class StopRequested:
    """The service wants the job to end: SIGTERM."""


@dataclass(frozen=True, slots=True)
class RayEnded:
    """A Ray process of this instance has ended, and the others with it."""

    why: str
    """Ray's message, on one line."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Only time has passed."""

    silent: frozenset[str] = frozenset()
    """Workers whose last heartbeats are missing, but which are not lost yet."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The other end of a control connection is gone, or reports its own failure."""

    host: str
    reason: str
    """A phrase that follows the host's name: ``closed its connection``."""


# Events of the head


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker has joined the control channel."""

    host: str


# Not Lost: a worker that says goodbye has finished.
@dataclass(frozen=True, slots=True)
class Left:
    """A worker has said goodbye."""

    host: str


# It has the job's token, so it was meant to join, and it never can.
@dataclass(frozen=True, slots=True)
class Mismatch:
    """A worker knows the token, but is not of this job: another payload, Python or Ray."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class RayLost:
    """A worker's Ray node has ended, and the worker starts another one."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class GcsAnswers:
    """The GCS of the head's Ray takes connections."""


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """The set of registered Ray nodes has changed."""

    nodes: Mapping[str, Node]
    """All of them, by host."""


@dataclass(frozen=True, slots=True)
class DriverEnded:
    """The driver has ended."""

    status: int
    """Its exit code, or minus the signal that killed it."""
    failure: Failure | None = None
    """The failure that it recorded."""


# Events of a worker


@dataclass(frozen=True, slots=True)
class Connected:
    """The head has taken this worker."""

    # By address, not by name: by names, instances that began at the same moment gave each other up.
    head_address: str
    """The head's IP address, as the control connection sees it."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """The head cannot be joined yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Invited:
    """The head says that its Ray answers."""

    port: int
    """The port of the head's GCS."""


@dataclass(frozen=True, slots=True)
class GcsReachable:
    """The head's Ray answers from here."""

    address: str
    """``IP:port``."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The head says that the job is over."""

    reason: str
    """The reason of its failure, on one line; empty if it did not fail."""


@dataclass(frozen=True, slots=True)
class OutputsTaken:
    """The head says which of the outputs that this instance has asked about the job has from another one."""

    keys: frozenset[str]
    """Keys of ``outputs.read_outputs``."""
    undescribed: frozenset[str] = frozenset()
    """Those of its other outputs that the manifest does not list yet."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A background task of this instance has failed."""

    error: Exception


Happening = (
    StopRequested
    | RayEnded
    | Tick
    | Lost
    | Joined
    | Left
    | Mismatch
    | RayLost
    | GcsAnswers
    | NodesChanged
    | DriverEnded
    | Connected
    | Delayed
    | Invited
    | GcsReachable
    | JobEnded
    | OutputsTaken
    | Failed
)


# Decisions


@dataclass(frozen=True, slots=True)
class Announce:
    """Write a state of the job into its log; the fields are those of ``contract.events.State``."""

    name: str
    host: str
    detail: str = ""
    count: int | None = field(default=None, kw_only=True)
    total: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Remark:
    """Write a line for people."""

    text: str


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start the driver ahead of the cluster: it imports what it needs, and waits."""


@dataclass(frozen=True, slots=True)
class InviteToRay:
    """Tell workers that the head's Ray answers."""

    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class BeginWork:
    """The cluster is formed: have the driver work on it, and show the dashboard once it is there."""

    address: str
    """The head's IP address, as Ray's nodes use it."""


@dataclass(frozen=True, slots=True)
class TerminateDriver:
    """Send the driver SIGTERM: it may write its checkpoint."""


@dataclass(frozen=True, slots=True)
class StartRay:
    """Start this worker's Ray node, ahead of the head's: it imports what it needs, and waits for ``JoinRay``."""


# Before Ray is told: its own command waits for a head that never comes, without a limit, and says nothing.
@dataclass(frozen=True, slots=True)
class ReachGcs:
    """Try until the head's Ray answers from here."""

    port: int


@dataclass(frozen=True, slots=True)
class JoinRay:
    """Have this worker's Ray node, which was started, join the head's."""

    address: str
    """``IP:port`` of the GCS to join."""


@dataclass(frozen=True, slots=True)
class TellHead:
    """Tell the head that this instance's Ray node was lost."""

    reason: str
    for_good: bool = False
    """True if it is not restarted, and the instance leaves."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The service asked for the end."""

    in_time: bool = False
    """True if user code ended with 0 before its grace was over."""


@dataclass(frozen=True, slots=True)
class Done:
    """The job goes on, or has ended, without anything for this instance to say about it."""


# One cause, the first: the SystemExit of a driver that was told to end explains nothing.
Cause = Exception | DriverEnded | Stopped | Done


@dataclass(frozen=True, slots=True)
class End:
    """This instance ends, and if it is the head, the job with it; nothing is decided after this."""

    cause: Cause
    """The first cause."""


Decision = (
    Announce
    | Remark
    | StartDriver
    | InviteToRay
    | BeginWork
    | TerminateDriver
    | StartRay
    | ReachGcs
    | JoinRay
    | TellHead
    | End
)


class Inbox:
    """The queue; its clock is ``time.monotonic``."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Happening] = asyncio.Queue()

    def put(self, event: Happening) -> None:
        """Add what has happened; from the event loop's thread only."""
        # Never full: what cannot be put would be lost, and each event is a few hundred bytes.
        self._events.put_nowait(event)

    async def take(self, until_s: float | None) -> Happening | None:
        """Wait for what happens next; return None if that is nothing before ``until_s`` (None: wait for ever)."""
        # An event that is there counts also after the deadline: wait_for with no time left would not take it.
        if not self._events.empty():
            return self._events.get_nowait()
        if until_s is None:
            return await self._events.get()
        try:
            return await asyncio.wait_for(self._events.get(), max(0.0, until_s - time.monotonic()))
        except TimeoutError:
            return None

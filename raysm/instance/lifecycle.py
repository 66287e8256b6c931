"""Events that happen to an instance, decisions that follow from them, and the queue of events.

``head_policy`` and ``worker_policy`` take events and return decisions. ``head`` and ``worker``
produce the events and carry out the decisions.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from raysm.core.protocol.result import Failure


@dataclass(frozen=True, slots=True)
class Node:
    node_id: str
    """Ray's id, hex; a restarted raylet gets a new one."""
    address: str


class Event:
    __slots__ = ()


class Decision:
    __slots__ = ()


# Events of the head and of workers


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The service sends SIGTERM, to all instances at once, to end the job."""


@dataclass(frozen=True, slots=True)
class RayEnded(Event):
    """A Ray process of this instance ended, as did the others; ``why`` is Ray's message.

    The message is one line.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """No event came before the deadline; some workers may be silent, but not lost yet."""

    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The other end of a control connection is gone, or reports its own failure.

    The reason follows the host's name.
    """

    host: str
    reason: str


# Events of the head


@dataclass(frozen=True, slots=True)
class Joined(Event):
    host: str


@dataclass(frozen=True, slots=True)
class Left(Event):
    host: str


@dataclass(frozen=True, slots=True)
class Mismatch(Event):
    """A worker has the job's token, but can never join.

    Its payload, Python or Ray differs from the head's.
    """

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class RayLost(Event):
    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class Checking(Event):
    """An instance has begun to check its GPUs; until ``Checked`` it does not count as present."""

    host: str


@dataclass(frozen=True, slots=True)
class Checked(Event):
    host: str


@dataclass(frozen=True, slots=True)
class GcsAnswers(Event):
    """The GCS of the head's Ray accepts connections."""


@dataclass(frozen=True, slots=True)
class NodesChanged(Event):
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class DriverEnded(Event):
    status: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """The job has shown no sign of life for as long as the request allows."""

    sentence: str
    """Who waits where, and who is elsewhere."""
    stacks: str
    """The stacks of all processes, as lines."""


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """A job that had stalled shows a sign of life again, after so many seconds."""

    after_s: float


# Events of a worker


@dataclass(frozen=True, slots=True)
class Connected(Event):
    head_address: str


@dataclass(frozen=True, slots=True)
class Delayed(Event):
    reason: str


@dataclass(frozen=True, slots=True)
class Invited(Event):
    port: int


@dataclass(frozen=True, slots=True)
class GcsReachable(Event):
    """The head's GCS answers from here, at ``IP:port``."""

    address: str


@dataclass(frozen=True, slots=True)
class JobEnded(Event):
    reason: str


@dataclass(frozen=True, slots=True)
class OutputsTaken(Event):
    """The head's answer to this instance's question about its outputs."""

    keys: tuple[str, ...]
    """The outputs that another instance has too, as keys of ``outputs.read_outputs``."""
    undescribed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed(Event):
    error: Exception


# Decisions


@dataclass(frozen=True, slots=True)
class Announce(Decision):
    """Write a state of the job into its log; the fields are those of ``contract.events.State``."""

    name: str
    host: str
    detail: str = ""
    count: int | None = field(default=None, kw_only=True)
    total: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Remark(Decision):
    text: str


@dataclass(frozen=True, slots=True)
class StartDriver(Decision):
    """Start the driver before the cluster is formed; it imports its modules and waits."""


@dataclass(frozen=True, slots=True)
class InviteToRay(Decision):
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class BeginWork(Decision):
    """The cluster is formed: start the workload, and announce the dashboard.

    The dashboard is at the head's IP address.
    """

    address: str


@dataclass(frozen=True, slots=True)
class TerminateDriver(Decision):
    """Send the driver SIGTERM, so that it can write a checkpoint."""


@dataclass(frozen=True, slots=True)
class KillDriver(Decision):
    """Kill the driver, to start it again; its end is the event that follows."""


@dataclass(frozen=True, slots=True)
class RestartDriver(Decision):
    """Start the driver again, after the end of the one before, on the same Ray cluster."""


@dataclass(frozen=True, slots=True)
class StartRay(Decision):
    """Start this worker's Ray node; it imports its modules and waits for ``JoinRay``."""


# Before JoinRay, because Ray's own command would wait for an unreachable head without a limit or a
# message.
@dataclass(frozen=True, slots=True)
class ReachGcs(Decision):
    port: int


@dataclass(frozen=True, slots=True)
class JoinRay(Decision):
    """Let this worker's Ray node, which has been started, join the GCS at ``IP:port``."""

    address: str


@dataclass(frozen=True, slots=True)
class TellHead(Decision):
    """Notify the head that this instance's Ray node was lost, ``for_good`` without a restart."""

    reason: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The service asked for the end."""

    in_time: bool = False
    """True if user code ended with 0 before its grace period was over."""


@dataclass(frozen=True, slots=True)
class Done:
    """This instance has finished without an error of its own."""


# Only the first cause counts: the SystemExit of a driver after SIGTERM explains nothing.
Cause = Exception | DriverEnded | Stopped | Done


@dataclass(frozen=True, slots=True)
class End(Decision):
    """End this instance, and on the head the job, by the first cause; this is the last decision."""

    cause: Cause


class Inbox:
    def __init__(self) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._events.put_nowait(event)

    async def take(self, until_s: float | None) -> Event | None:
        """Wait for the next event; None if none comes before ``until_s`` (None waits forever)."""
        # A queued event counts even after the deadline, when wait_for would raise TimeoutError.
        if not self._events.empty():
            return self._events.get_nowait()
        if until_s is None:
            return await self._events.get()
        try:
            return await asyncio.wait_for(self._events.get(), max(0.0, until_s - time.monotonic()))
        except TimeoutError:
            return None

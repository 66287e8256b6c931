"""The life of a worker: join the head, start Ray when the head's answers, keep it alive until the head says done.

As on the head, everything that happens arrives in one queue, and what flows out is the ``Ending`` of this instance.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from raysm.bootstrap import control
from raysm.bootstrap.address import backoff, explain, is_loopback, port_answers, resolve
from raysm.bootstrap.children import Children
from raysm.bootstrap.control import WorkerControl
from raysm.bootstrap.ending import STOPPED, Ending
from raysm.bootstrap.instance import Instance
from raysm.bootstrap.log import remark
from raysm.bootstrap.ray_node import RayNode
from raysm.bootstrap.wire import MAX_LINE, ProtocolError, TokenRefused
from raysm.errors import ClusterNotFormed, InstanceLost, InvalidPayload, RayFailed

__all__ = ["Worker"]

MAX_RESTARTS = 3
END_GRACE_S = 0.5
"""Seconds that Ray has to end by itself, of the two within which a worker is gone."""
STOP_MARGIN_S = 10.0
"""Seconds beyond user code's grace that the head may need to say done."""
SERVICE_GRACE_S = 118.0
"""SageMaker kills 120 s after SIGTERM."""
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Connected:
    control: WorkerControl


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


@dataclass(frozen=True, slots=True)
class _Reachable:
    address: str


@dataclass(frozen=True, slots=True)
class _RayEnded:
    node: RayNode


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Event = control.Report | _Connected | _Failed | _Reachable | _RayEnded | _Stop


class Worker:
    """One worker, for one job."""

    def __init__(self, instance: Instance, children: Children) -> None:
        """Prepare; ``run`` does everything."""
        self._instance, self._children = instance, children
        self._deadline = time.monotonic() + instance.cluster.join_timeout_s
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._env = instance.ray_environment()
        self._control: WorkerControl | None = None
        self._node: RayNode | None = None
        self._gcs = ""
        self._restarts = 0
        self._stop_at: float | None = None
        self._waits_for = ""
        self._lost_head = False

    def stop(self) -> None:
        """Ask for a stop: Ray stays until the head says done, or the grace is over."""
        self._events.put_nowait(_Stop())

    async def run(self) -> Ending:
        """Live; return how this instance ends."""
        self._spawn(self._join)
        while True:
            event = await self._next()
            ending = self._take(event) if event else self._take_timeout()
            if ending is not None:
                return ending

    async def end(self, ending: Ending) -> None:
        """End Ray and everything else here, then say goodbye."""
        for task in self._tasks:
            task.cancel()
        if self._control and ending.reason and not self._lost_head:
            self._control.tell({"kind": "failed", "reason": ending.reason[:500]})
        await self._children.end_all(0.0 if self._lost_head else END_GRACE_S)
        if self._control:
            await self._control.leave()
        if self._node:
            self._node.close()

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        async def guarded() -> None:
            try:
                await work()
            except Exception as error:  # becomes this instance's ending, in the queue's order
                self._events.put_nowait(_Failed(error))

        self._tasks.append(asyncio.create_task(guarded()))

    async def _next(self) -> _Event | None:
        """Return what happens next; None at a deadline."""
        limit = self._stop_at
        # Who is to stop need not join any more.
        if limit is None and self._node is None:
            limit = self._deadline
        if limit is None:
            return await self._events.get()
        try:
            return await asyncio.wait_for(self._events.get(), max(0.0, limit - time.monotonic()))
        except TimeoutError:
            return None

    def _take_timeout(self) -> Ending:
        if self._stop_at is not None:
            return Ending(STOPPED, stopped=True)
        cluster = self._instance.cluster
        said = f"{self._instance.name} did not join the head {self._instance.head} within {cluster.join_timeout_s:g} s:"
        said += f" {self._waits_for}"
        if cluster.min_instances is None:
            raise ClusterNotFormed(said)
        # Whether the job goes on without this instance is the head's to say, and one that fails would fail it.
        remark(f"{said}; leaving it to the others, as min_instances={cluster.min_instances} says")
        return Ending(0)

    def _take(self, event: _Event) -> Ending | None:
        """Handle what happened; return the ending if that is what it means."""
        if isinstance(event, _Stop):
            return self._take_stop()
        if isinstance(event, _Failed):
            raise event.error
        if isinstance(event, _Connected):
            self._control = event.control
            self._waits_for = "the head has not said that its Ray answers"
            self._spawn(lambda: event.control.run(self._events.put_nowait))
        elif isinstance(event, control.Told):
            return self._take_message(event.message)
        elif isinstance(event, control.Lost):
            self._lost_head = True
            if self._stop_at is not None:
                return Ending(STOPPED, stopped=True)
            raise InstanceLost(f"the head {event.host} was lost: it {event.reason}")
        elif isinstance(event, _Reachable):
            self._gcs = event.address
            self._start_node()
        elif isinstance(event, _RayEnded) and event.node is self._node:
            self._restart_node()
        return None

    def _take_stop(self) -> Ending | None:
        if self._control is None:
            return Ending(STOPPED, stopped=True)
        if self._stop_at is None:
            grace_s = min(self._instance.request.grace_s + STOP_MARGIN_S, SERVICE_GRACE_S)
            self._stop_at = time.monotonic() + grace_s
        return None

    def _take_message(self, message: control.Message) -> Ending | None:
        if message.get("kind") == "done":
            if message.get("reason"):
                remark(f"the head {self._instance.head} ended the job: {message['reason']}")
            return Ending(0)
        if message.get("kind") == "ray":
            assert self._control is not None
            address = self._control.addresses[1]
            port = int(message["port"])
            self._spawn(lambda: self._reach_gcs(address, port))
        return None

    # Joining

    async def _join(self) -> None:
        """Connect to the head, however late its name resolves and its port opens."""
        attempt = 0
        while True:
            try:
                joined = await control.join(
                    self._connect,
                    token=self._instance.payload.token(),
                    host=self._instance.name,
                    head=self._instance.head,
                    identity=self._instance.identity,
                    silence_s=self._instance.cluster.silence_s,
                )
            except (TokenRefused, control.Refused) as error:
                raise InvalidPayload(str(error)) from error
            except (TimeoutError, OSError, ProtocolError) as error:
                self._waits_for = explain(error, self._instance.head, self._instance.ports.control)
                await asyncio.sleep(backoff(attempt))
                attempt += 1
            else:
                self._events.put_nowait(_Connected(joined))
                return

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        head = self._instance.head
        address = await resolve(self._instance.environment.addresses.get(head, head))
        connection = asyncio.open_connection(address, self._instance.ports.control, limit=MAX_LINE)
        return await asyncio.wait_for(connection, CONNECT_TIMEOUT_S)

    async def _reach_gcs(self, address: str, port: int) -> None:
        """Make sure that the head's Ray can be reached from here: Ray itself would try for minutes in silence."""
        attempt = 0
        self._waits_for = (
            f"the control channel works, but the head's Ray does not answer at {address}, port {port}:"
            " a firewall or security group may drop the packets"
        )
        while not await port_answers(address, port):
            await asyncio.sleep(backoff(attempt))
            attempt += 1
        self._events.put_nowait(_Reachable(f"{address}:{port}"))

    # Ray

    def _start_node(self) -> None:
        assert self._control is not None
        named = self._instance.environment.addresses.get(self._instance.name)
        own = named or self._control.addresses[0]
        command = self._instance.ray_command(self._gcs, None if is_loopback(own) else own)
        self._node = node = RayNode(self._children, command, self._env)
        node.ended.add_done_callback(lambda _: self._events.put_nowait(_RayEnded(node)))

    def _restart_node(self) -> None:
        assert self._control is not None
        assert self._node is not None
        why = self._node.why()
        self._node.close()
        self._node = None
        if self._restarts == MAX_RESTARTS:
            raise RayFailed(f"Ray on {self._instance.name} ended for the {MAX_RESTARTS + 1}th time: {why}")
        self._restarts += 1
        text = f"its Ray node ended ({why}); restart {self._restarts} of {MAX_RESTARTS}"
        remark(f"{self._instance.name}: {text}")
        with contextlib.suppress(OSError):
            self._control.tell({"kind": "ray_lost", "reason": text[:500]})
        self._start_node()

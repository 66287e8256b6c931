"""The life of the head: start Ray, gather the workers, run the driver, watch everything, end all.

Everything that happens arrives in one queue (a worker joined, a Ray process ended, a stop was asked for …) and is
handled in order, by one coroutine; what flows out is the ``Ending`` of this instance, and events for the log.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import NoReturn

from raysm.bootstrap import control, failure_record, resources
from raysm.bootstrap.address import interface_address, is_loopback, port_answers, resolve
from raysm.bootstrap.children import Children
from raysm.bootstrap.control import HeadControl
from raysm.bootstrap.dashboard import announce
from raysm.bootstrap.driver_process import DriverProcess
from raysm.bootstrap.ending import STOPPED, Ending, ending_of_driver
from raysm.bootstrap.instance import Instance
from raysm.bootstrap.log import emit, remark
from raysm.bootstrap.private import passing_folder
from raysm.bootstrap.programs import WAIT
from raysm.bootstrap.ray_node import RayNode
from raysm.bootstrap.registered import Node, Registry
from raysm.contract.events import State
from raysm.contract.result import Failure
from raysm.errors import ClusterNotFormed, InstanceLost, InvalidPayload, RayFailed, RaysmError

__all__ = ["Head"]

END_GRACE_S = 0.6
"""Seconds that Ray has to end by itself once the job is over; its raylet and GCS need 0.2."""
FAREWELL_S = 3.0
"""Seconds that the workers have to say goodbye; their own end takes less than two."""
PROBE_S = 0.05
VERDICT_S = 1.5
"""``ray start`` looks after its processes once a second: so long a driver's end may precede the news of its cause."""


@dataclass(frozen=True, slots=True)
class _GcsAnswers:
    pass


@dataclass(frozen=True, slots=True)
class _RayEnded:
    pass


@dataclass(frozen=True, slots=True)
class _DriverEnded:
    status: int


@dataclass(frozen=True, slots=True)
class _Registered:
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Event = control.Report | _GcsAnswers | _RayEnded | _DriverEnded | _Registered | _Stop


class _Stopped(Exception):
    """The service wants this job to stop: no error, but the way out of every wait."""


class _DriverLeft(Exception):
    """The driver has ended, by itself, and the job ends with it, whatever it is waiting for."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)


class Head:
    """One head, for one job."""

    def __init__(self, instance: Instance, children: Children) -> None:
        """Prepare; ``run`` does everything."""
        self._instance, self._children = instance, children
        self._started = time.monotonic()
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._hosts = tuple(host.name for host in instance.environment.ranked(instance.cluster))
        self._control = HeadControl(
            token=instance.payload.token(),
            identity=instance.identity,
            hosts=self._hosts[1:],
            report=self._events.put_nowait,
            silence_s=instance.cluster.silence_s,
        )
        self._env = instance.ray_environment()
        self._ray: RayNode | None = None
        self._registry: Registry | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._nodes: Mapping[str, Node] = {}
        self._gone: dict[str, str] = {}
        self._restarting: dict[str, str] = {}
        self._gcs_answers = False
        self._formed = False
        self._without: frozenset[str] = frozenset()
        self._driver: DriverProcess | None = None
        self._working = False
        self._oom_kills: int | None = None
        self._passing = contextlib.ExitStack()
        self._failure_record = Path()

    def stop(self) -> None:
        """Ask for a stop: user code gets its grace."""
        self._events.put_nowait(_Stop())

    async def run(self) -> Ending:
        """Live; return how this instance, and with it the job, ends: by what came first."""
        try:
            await self._begin()
            await self._form()
            await self._work()
        except _Stopped:
            return await self._stop_driver()
        except _DriverLeft as left:
            return await self._conclude(left.status)
        except RaysmError:
            failure = self._own_failure()
            if failure is None:
                raise
            # The driver had failed by itself before, and is only slow to leave.
            return self._blame_driver(Ending(failure.exit_code, failure.reason()))

    async def end(self, ending: Ending) -> None:
        """Tell the workers, end Ray and everything else here, and wait for the workers' goodbye."""
        for task in self._tasks:
            task.cancel()
        if self._registry:
            self._registry.stop()
        self._control.tell_all({"kind": "done", "exit_code": ending.exit_code, "reason": ending.headline[:500]})
        await asyncio.gather(self._children.end_all(END_GRACE_S), self._farewell())
        if self._driver:
            self._driver.go("")
        self._passing.close()
        await self._control.close()
        if self._ray:
            self._ray.close()

    async def _farewell(self) -> None:
        until = time.monotonic() + FAREWELL_S
        while self._control.joined and time.monotonic() < until:
            await asyncio.sleep(0.02)

    # Forming

    async def _begin(self) -> None:
        """Listen, and start Ray."""
        address = await self._own_address()
        ports = self._instance.ports
        named = self._instance.environment.addresses.get(self._instance.name)
        local = is_loopback(named) if named else len(self._hosts) == 1
        try:
            await self._control.start("127.0.0.1" if local else "0.0.0.0", ports.control)
        except OSError as error:
            raise ClusterNotFormed(
                f"the head {self._instance.name} cannot listen on its control port {ports.control}: {error.strerror};"
                " give another one by the request's ports"
            ) from error
        self._emit_joined(self._instance.name)
        self._ray = RayNode(self._children, self._instance.ray_command(None, address), self._env)
        self._ray.ended.add_done_callback(lambda _: self._events.put_nowait(_RayEnded()))
        self._tasks.append(asyncio.create_task(self._probe_gcs()))
        # Its imports take as long as the forming; no user's code runs before the cluster is formed.
        if self._instance.request.workload.prepares_ahead:
            self._driver = self._start_driver(None)

    async def _own_address(self) -> str | None:
        """Return the address at which the others find this instance; None if only loopback is known."""
        environment = self._instance.environment
        named = environment.addresses.get(environment.current_host)
        try:
            found: str | None = await asyncio.wait_for(resolve(named or environment.current_host), 2)
        except (TimeoutError, OSError):
            found = None
        if named is None:
            # A container's own name may resolve to loopback, or not yet: the shared interface knows better.
            if (found is None or is_loopback(found)) and environment.network_interface:
                found = interface_address(environment.network_interface)
        return None if found is None or is_loopback(found) else found

    async def _probe_gcs(self) -> None:
        while not await port_answers("127.0.0.1", self._instance.ports.gcs):
            await asyncio.sleep(PROBE_S)
        self._events.put_nowait(_GcsAnswers())

    async def _form(self) -> None:
        """Wait until every instance has joined and its Ray node is registered.

        Raises:
            ClusterNotFormed: The deadline passed with fewer than are needed.
        """
        deadline = self._started + self._instance.cluster.join_timeout_s
        while not all(self._is_in(host) for host in self._hosts if host not in self._gone):
            try:
                event = await asyncio.wait_for(self._events.get(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                self._require_enough()
                break
            self._take(event)
        self._formed = True
        self._without = frozenset(host for host in self._hosts if not self._is_in(host))
        if self._registry:
            self._registry.stop()
        count = sum(self._is_in(host) for host in self._hosts)
        emit(State(name="formed", host=self._instance.name, count=count, total=len(self._hosts)))
        dashboard = announce(self._instance.name, self._dashboard_address(), self._instance.ports.dashboard)
        self._tasks.append(asyncio.create_task(dashboard))

    def _is_in(self, host: str) -> bool:
        return host in self._nodes and (host == self._instance.name or host in self._control.joined)

    def _require_enough(self) -> None:
        cluster = self._instance.cluster
        missing = [host for host in self._hosts if not self._is_in(host)]
        present = len(self._hosts) - len(missing)
        connected = [host for host in missing if host in self._control.joined or host == self._instance.name]
        absent = [host for host in missing if host not in connected]
        said = f"{present} of {len(self._hosts)} instances joined within {cluster.join_timeout_s:g} s"
        if absent:
            said += f"; missing: {_listed(absent)}"
        if connected:
            said += f"; connected, but without a registered Ray node: {_listed(connected)}"
        # A head that only coordinates would wait for ever for somebody to work.
        needed = max(cluster.min_instances or len(self._hosts), 2 if cluster.coordinator_only else 1)
        if present < needed or self._instance.name in missing:
            raise ClusterNotFormed(said)
        remark(f"{said}; going on, as min_instances={cluster.min_instances} says")

    def _dashboard_address(self) -> str:
        node = self._nodes[self._instance.name]
        named = self._instance.environment.addresses.get(self._instance.name, node.address)
        return "127.0.0.1" if is_loopback(named) else node.address

    # What happens

    def _take(self, event: _Event) -> None:
        """Handle what may happen at any time; what ends the job raises."""
        if isinstance(event, _Stop):
            raise _Stopped
        if isinstance(event, _DriverEnded):
            raise _DriverLeft(event.status)
        if isinstance(event, _RayEnded):
            assert self._ray is not None
            raise RayFailed(f"Ray on the head {self._instance.name} ended: {self._ray.why()}")
        if isinstance(event, _GcsAnswers):
            self._gcs_answers = True
            self._control.tell_all(self._ray_message())
            self._watch_registry()
        elif isinstance(event, _Registered):
            self._take_nodes(event.nodes)
        elif isinstance(event, control.Joined):
            self._emit_joined(event.host)
            if self._gcs_answers:
                self._control.tell(event.host, self._ray_message())
        elif isinstance(event, control.Mismatch):
            raise InvalidPayload(event.reason)
        elif isinstance(event, control.Lost):
            self._take_loss(event.host, event.reason)
        elif isinstance(event, control.Left):
            self._take_loss(event.host, "it left before the job was over")
        elif isinstance(event, control.Told):
            self._take_message(event.host, event.message)

    def _ray_message(self) -> dict[str, object]:
        return {"kind": "ray", "port": self._instance.ports.gcs}

    def _watch_registry(self) -> None:
        if self._registry is None:
            command = (*self._instance.programs.registry, f"127.0.0.1:{self._instance.ports.gcs}")
            self._registry = Registry(self._children, command, self._env)
        self._registry.start(lambda nodes: self._events.put_nowait(_Registered(nodes)))

    def _take_nodes(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        for host, old in list(self._restarting.items()):
            if host in nodes and nodes[host].node_id != old:
                del self._restarting[host]
                emit(State(name="rejoined", host=host, detail="its Ray node was restarted"))
        if self._formed and not self._restarting and self._registry:
            self._registry.stop()

    def _take_message(self, host: str, message: control.Message) -> None:
        reason = str(message.get("reason", ""))
        if message.get("kind") == "ray_lost":
            emit(State(name="lost", host=host, detail=reason))
            if host in self._nodes:
                self._restarting[host] = self._nodes[host].node_id
            self._watch_registry()
        elif message.get("kind") == "failed":
            self._take_loss(host, reason)

    def _take_loss(self, host: str, reason: str) -> None:
        """Note that a worker is gone; raise if the job cannot, or shall not, go on."""
        if host in self._gone:
            return
        self._gone[host] = reason
        self._restarting.pop(host, None)
        emit(State(name="lost", host=host, detail=reason))
        cluster = self._instance.cluster
        left = [other for other in self._hosts if other not in self._gone]
        if self._formed:
            fatal = cluster.on_instance_loss == "fail" and host not in self._without
            # Of those that had not joined in time, only those that came later work.
            left = [other for other in left if other == self._instance.name or other in self._control.joined]
        else:
            fatal = len(left) < (cluster.min_instances or len(self._hosts))
        if fatal:
            raise InstanceLost(f"{host} lost: {reason}")
        if cluster.coordinator_only and len(left) < 2:
            raise InstanceLost(f"{host} lost: {reason}; no instance is left to work, because the head only coordinates")
        remark(f"{host} lost: {reason}; going on with {len(left)} instances, as the request says")

    def _emit_joined(self, host: str) -> None:
        count = 1 + len(self._control.joined)
        emit(State(name="joined", host=host, count=count, total=len(self._hosts)))

    # The driver

    async def _work(self) -> NoReturn:
        """Have the driver do its work, and handle what happens until that ends the job."""
        address = f"{self._nodes[self._instance.name].address}:{self._instance.ports.gcs}"
        self._working = True
        if self._driver:
            self._driver.go(address)
        else:
            self._driver = self._start_driver(address)
        while True:
            self._take(await self._events.get())

    async def _conclude(self, status: int) -> Ending:
        """Return the ending that the driver's end makes, unless something else ended the driver."""
        assert self._driver is not None
        failure = failure_record.read(self._failure_record)
        if status != 0 and (failure is None or failure_record.blames_cluster(failure)):
            await self._await_cause()
        now, before = resources.oom_kills(), self._oom_kills
        meanwhile = None if now is None or before is None else now - before
        self._driver.child.signal_group(SIGKILL)  # what it left behind holds its stderr open
        memory_bytes = self._instance.capacity.memory_bytes
        ending = ending_of_driver(status, failure, self._driver.tail(), memory_bytes, meanwhile)
        return ending if failure is None else self._blame_driver(ending)

    def _own_failure(self) -> Failure | None:
        """Return why the driver has failed by itself; None where it has not, or says that Ray failed it."""
        failure = failure_record.read(self._failure_record)
        return None if failure is None or failure_record.blames_cluster(failure) else failure

    def _blame_driver(self, ending: Ending) -> Ending:
        """Make what the driver has recorded the job's failure."""
        if ending.reason:
            failure_record.publish(self._failure_record, self._instance.environment.paths.output_data)
        return ending

    def _start_driver(self, address: str | None) -> DriverProcess:
        """Start the driver for the cluster at ``address``, or, for None, one that waits until there is one."""
        # In the instance's own folder: a head that is killed leaves nothing in a /tmp that it may share with others.
        folder = self._passing.enter_context(passing_folder(self._instance.environment.paths))
        self._failure_record = folder / "failure.json"
        env = self._instance.driver_environment(address, str(self._failure_record))
        command = (*self._instance.programs.driver, *([WAIT] if address is None else []))
        self._oom_kills = resources.oom_kills()
        source = self._instance.payload.source
        driver = DriverProcess(self._children, command, env, source, waits=address is None)
        driver.child.ended.add_done_callback(lambda ended: self._events.put_nowait(_DriverEnded(ended.result())))
        return driver

    async def _await_cause(self) -> None:
        """Give the news of a dead Ray process or instance, of which the driver may have died, time to arrive.

        Of an instance that is silent now, that is until it speaks, or is lost.
        """
        until = time.monotonic() + VERDICT_S
        while (left := until - time.monotonic()) > 0 or self._control.silent:
            try:
                event = await asyncio.wait_for(self._events.get(), max(left, PROBE_S))
            except TimeoutError:
                continue
            if not isinstance(event, _Stop):
                self._take(event)

    async def _stop_driver(self) -> Ending:
        """Let the driver write its checkpoint; whatever else happens meanwhile does not matter any more."""
        remark(f"{self._instance.name} was told to stop (SIGTERM)")
        if self._driver is None or not self._working:
            emit(State(name="stopping", host=self._instance.name))
            return Ending(STOPPED, stopped=True)
        grace_s = self._instance.request.grace_s
        emit(State(name="stopping", host=self._instance.name, detail=f"user code has {grace_s:g} s"))
        self._driver.child.signal(SIGTERM)
        status = await self._driver.child.wait(grace_s)
        self._driver.child.signal_group(SIGKILL)
        return Ending(0 if status == 0 else STOPPED, stopped=True)


def _listed(hosts: Sequence[str], limit: int = 20) -> str:
    more = f" and {len(hosts) - limit} more" if len(hosts) > limit else ""
    return ", ".join(hosts[:limit]) + more

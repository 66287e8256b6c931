"""A worker instance: it joins the head and runs a Ray node until the head ends the job.

It keeps the node alive until then.

As on the head, all events arrive in one queue. ``worker_policy`` decides, without side effects, and
this module carries the decisions out. The result is the ``ExitStatus`` of this instance.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from raysm.core.protocol.control_line import MAX_LINE, ProtocolError, TokenRefused
from raysm.core.protocol.loop_thread import LoopThread, bound_to_this_loop
from raysm.core.protocol.store import remove_unfinished, sha256_of
from raysm.errors import InvalidPayload
from raysm.instance import control
from raysm.instance import lifecycle as life
from raysm.instance.address import (
    LOOPBACK,
    backoff,
    explain,
    is_loopback,
    own_port_answers,
    resolve,
    resolve_peer,
)
from raysm.instance.children import Children
from raysm.instance.control import MessageReceived, WorkerControl
from raysm.instance.exit_status import STOPPED, ExitStatus
from raysm.instance.instance import Instance
from raysm.instance.log import remark
from raysm.instance.outputs import give_way, in_pieces, read_outputs
from raysm.instance.ray_node import LATER, RayNode
from raysm.instance.worker_policy import WorkerPolicy, WorkerRules

ANSWER_S = 5.0
CONNECT_TIMEOUT_S = 5.0
"""Seconds for one attempt. If a firewall drops the packets, TCP itself would try for two
minutes."""
WARNINGS_POLL_S = 2.0

P = ParamSpec("P")


class Worker:
    def __init__(self, instance: Instance, children: Children) -> None:
        self._instance = instance
        self._children = children
        rules = WorkerRules(
            name=instance.name,
            head=instance.head,
            cluster=instance.cluster,
            grace_s=instance.request.chosen_grace_s,
        )
        self._policy = WorkerPolicy.begin(rules, time.monotonic())
        self._inbox = life.Inbox()
        self._tasks: list[asyncio.Task[None]] = []
        # A thread of its own, so that processes, disks and the log cannot delay the heartbeats.
        self._network = LoopThread("control")
        self._control: WorkerControl | None = None
        self._ray: RayNode | None = None
        self._holds = False

    def stop(self) -> None:
        self._inbox.put(life.StopRequested())

    def fail(self, error: Exception) -> None:
        self._inbox.put(life.Failed(error))

    def hold(self) -> None:
        """Have the head not begin the work before ``release``."""
        self._holds = True

    def release(self) -> None:
        self._holds = False
        if self._control is not None:
            self._network.call(self._control.tell, control.encode(life.Checked("")))

    async def run(self) -> ExitStatus:
        self._spawn(self._join)
        while True:
            event = await self._inbox.take(self._policy.wakes_at_s) or life.Tick()
            self._policy, decisions = self._policy.take(event, time.monotonic())
            for decision in decisions:
                match decision:
                    case life.End(cause):
                        return _conclude(cause)
                self._carry_out(decision)

    async def end(self, status: ExitStatus) -> None:
        is_alone = self._policy.head_lost or self._control is None
        if is_alone:
            self._cancel_tasks()
        if self._control and status.reason and not is_alone:
            self._network.call(self._control.tell, control.encode(life.Lost("", status.reason)))
        if self._ray:
            self._ray.kill()
        await self._children.end_all(0.0)
        if self._control and not is_alone:
            # All processes that could write outputs have ended.
            await self._settle_outputs(self._control)
        self._cancel_tasks()
        if self._control:
            await self._network.carry_out(self._control.leave())
        self._network.close()
        if self._ray:
            self._ray.close()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _settle_outputs(self, line: WorkerControl) -> None:
        """Remove or move outputs that another instance has, too; describe others to the head."""
        paths = self._instance.environment.paths
        # On the head, the driver does this.
        remove_unfinished(paths.model)
        files = read_outputs(paths)
        size_bytes = sum(path.lstat().st_size for path in files.values())
        of_others: set[str] = set()
        undescribed: list[str] = []
        # One question at a time, because the head drops a worker that has too many bytes in its
        # queue.
        for keys in in_pieces(files):
            claim = control.OutputsClaimed("", tuple(keys), size_bytes)
            self._network.call(line.tell, control.encode(claim))
            answer = await self._await_answer()
            if answer is None:
                break
            of_others.update(answer.keys)
            undescribed += [
                key
                for key in keys
                if key in answer.undescribed and files[key].is_relative_to(paths.model)
            ]
        try:
            for text in give_way(paths, self._instance.name, files, of_others):
                remark(text)
        # The result is complete; only outputs of the same name may overwrite each other.
        except OSError as error:
            remark(
                f"{self._instance.name}: "
                f"outputs of the same name in several instances may be mixed up: {error}"
            )
        for path in (files[key] for key in undescribed):
            # In a thread, because this takes long for a large model, and the loop must still handle
            # a stop.
            with contextlib.suppress(OSError):
                digest = await asyncio.to_thread(sha256_of, path)
                file = control.FileLeft(
                    path.relative_to(paths.model).as_posix(), path.stat().st_size, digest
                )
                self._network.call(line.tell, control.encode(file))

    async def _await_answer(self) -> life.OutputsTaken | None:
        """Return None if the head is lost or does not answer in time."""
        until_s = time.monotonic() + ANSWER_S
        while event := await self._inbox.take(until_s):
            match event:
                case life.OutputsTaken():
                    return event
                case life.Lost():
                    return None
        return None

    def _spawn(self, work: Callable[P, Awaitable[None]], *args: P.args, **named: P.kwargs) -> None:
        async def guarded() -> None:
            try:
                await work(*args, **named)
            except Exception as error:  # it becomes the cause of this instance's end
                self._inbox.put(life.Failed(error))

        self._tasks.append(asyncio.create_task(guarded()))

    def _carry_out(self, decision: life.Decision) -> None:
        match decision:
            case life.Remark(text):
                remark(text)
            case life.StartRay():
                self._start_ray()
            case life.ReachGcs(port):
                self._spawn(self._reach_gcs, self._policy.head_address, port)
            case life.JoinRay(address):
                assert self._ray is not None
                self._ray.join(address)
            case life.TellHead(reason, for_good):
                assert self._control is not None
                event = life.Lost("", reason) if for_good else life.RayLost("", reason)
                self._network.call(self._control.tell, control.encode(event))
            case _:
                raise AssertionError(f"{decision} is for heads")

    # Joining

    async def _join(self) -> None:
        """Connect to the head, however late its name resolves or port opens; deliver messages."""
        attempt = 0
        while self._control is None:
            try:
                joining = control.join(
                    self._connect,
                    token=self._instance.payload.token(),
                    host=self._instance.name,
                    head=self._instance.head,
                    identity=self._instance.identity,
                    silence_s=self._instance.cluster.silence_s,
                )
                self._control = await self._network.carry_out(joining)
            except (TokenRefused, control.Refused) as error:
                # A retry does not help: the head has another token, or refuses this worker.
                raise InvalidPayload(str(error)) from error
            except (TimeoutError, OSError, ProtocolError) as error:
                self._inbox.put(
                    life.Delayed(explain(error, self._instance.head, self._instance.ports.control))
                )
                await asyncio.sleep(backoff(attempt))
                attempt += 1
        if self._holds:
            # Ray's node joins later, so that the head cannot miss this.
            self._network.call(self._control.tell, control.encode(life.Checking("")))
        self._inbox.put(life.Connected(self._control.addresses[1]))
        await self._network.carry_out(self._control.run(bound_to_this_loop(self._on_report)))

    def _on_report(self, report: control.Report) -> None:
        match report:
            case MessageReceived(_, message):
                match control.decode(message, control.TO_WORKER):
                    case control.StacksWanted(number, wanted):
                        self._spawn(self._send_stacks, number, wanted)
                    case control.CheckpointWanted():
                        self._spawn(self._send_checkpoint)
                    case None:
                        pass
                    case event:
                        self._inbox.put(event)
            case _:
                self._inbox.put(report)

    async def _send_checkpoint(self) -> None:
        assert self._control is not None
        is_there = await asyncio.to_thread(self._instance.has_checkpoint)
        answer = control.CheckpointFound("", is_there)
        self._network.call(self._control.tell, control.encode(answer))

    async def _send_stacks(self, number: int, wanted: control.Wanted) -> None:
        # Imported when it is needed, because every start of an instance waits for imports.
        from raysm.instance.stacks import Reader, parts_of

        assert self._control is not None
        instance = self._instance
        reader = Reader(instance.name, instance.has_own_network, self._children, instance.inherited)
        snapshot = await reader.read(wanted)
        for part in parts_of(snapshot, number):
            self._network.call(self._control.tell, control.encode(part))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        head = self._instance.head
        addresses = self._instance.environment.addresses
        # Instances with given addresses may share one machine, so a loopback address is allowed.
        address = await (resolve(addresses[head]) if head in addresses else resolve_peer(head))
        connection = asyncio.open_connection(address, self._instance.ports.control, limit=MAX_LINE)
        return await asyncio.wait_for(connection, CONNECT_TIMEOUT_S)

    async def _reach_gcs(self, address: str, port: int) -> None:
        """Wait until the head's GCS can be reached: Ray would try for minutes without a message."""
        attempt = 0
        while not await own_port_answers(address, port):
            await asyncio.sleep(backoff(attempt))
            attempt += 1
        self._inbox.put(life.GcsReachable(f"{address}:{port}"))

    # Ray

    def _start_ray(self) -> None:
        assert self._control is not None
        if self._ray:
            self._ray.close()
        named = self._instance.environment.addresses.get(self._instance.name)
        # The address that this worker has on the control connection is one that the head's Ray can
        # reach.
        address = named or self._control.addresses[0]
        instance = self._instance.at(LOOPBACK if is_loopback(address) else address)
        command = instance.ray_command(LATER)
        environment = instance.ray_environment(self._control.addresses[1])
        self._ray = ray = RayNode(self._children, command, environment, waits=True)
        ray.ended.add_done_callback(lambda _: self._inbox.put(life.RayEnded(ray.why())))
        self._spawn(self._show_warnings, ray)

    async def _show_warnings(self, ray: RayNode) -> None:
        """Write the node's warnings into the log while it may still be joining."""
        shown = 0
        until_s = time.monotonic() + self._instance.cluster.join_timeout_s
        while not ray.ended.done() and time.monotonic() < until_s:
            warnings = ray.read_warnings()
            for warning in warnings[shown:]:
                remark(f"{self._instance.name}: {warning}")
            shown = len(warnings)
            await asyncio.sleep(WARNINGS_POLL_S)


def _conclude(cause: life.Cause) -> ExitStatus:
    match cause:
        case life.Stopped():
            return ExitStatus(STOPPED, stopped=True)
        case life.Done():
            return ExitStatus(0)
        case Exception():
            raise cause
    raise AssertionError(f"a worker does not end by {cause}")

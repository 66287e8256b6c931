"""The head instance: it starts the first Ray node, accepts the workers and runs the driver.

Signals, sockets and processes put events into one queue. ``head_policy`` decides what to do,
without side effects, and one coroutine here carries it out. The result is this instance's
``ExitStatus``; events of the job go to the log.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raysm.core.protocol.connections import check_listener
from raysm.core.protocol.events import State
from raysm.core.protocol.loop_thread import LoopThread, bound_to_this_loop
from raysm.core.protocol.result import ResultFile, described_file, own_manifest
from raysm.errors import ClusterNotFormed, ForeignListener, InvalidRequest, MetricDiverged
from raysm.instance import control
from raysm.instance import lifecycle as life
from raysm.instance.address import LOOPBACK, find_own_address, is_loopback, own_port_answers
from raysm.instance.children import Children
from raysm.instance.control import HeadControl, MessageReceived, Report
from raysm.instance.divergence import DivergenceWatch
from raysm.instance.driver_process import DriverRun
from raysm.instance.exit_status import STOPPED, ExitStatus
from raysm.instance.first_checkpoint import FIRST_CHECKPOINT_S, warn_without_checkpoint
from raysm.instance.gcs_state import NodeWatcher, nodes_socket, pending_socket, watch_pending
from raysm.instance.head_policy import HeadPolicy, Rules
from raysm.instance.instance import Instance
from raysm.instance.log import emit_event, remark
from raysm.instance.outputs import Owners, complete_manifest, model_key, read_outputs
from raysm.instance.pending_requests import UnmetRequests, WaitingRequests, observe
from raysm.instance.ray_node import RayNode

if TYPE_CHECKING:
    from raysm.instance.stacks import Collection, Snapshot

END_GRACE_S = 0.6
"""Seconds that a driver and its processes have to end by themselves once the job is over."""
FAREWELL_S = 3.0
"""Seconds that the workers have to say goodbye; their own end takes less than two."""
DIGEST_BYTES_PER_S = 50e6
"""The speed at which the slowest worker computes digests, for the head's timeout."""
PROBE_S = 0.02
OWN_END_S = 30.0
"""Seconds that a program has to end by itself once it has reported the value at which the job ends;
it then knows more about the reason, such as the last checkpoint."""
LINE_POLL_S = 5.0
"""Seconds between two looks at the time of the driver's last line."""


class Head:
    def __init__(
        self,
        instance: Instance,
        children: Children,
        *,
        first_checkpoint_s: float = FIRST_CHECKPOINT_S,
        own_end_s: float = OWN_END_S,
    ) -> None:
        self._instance = instance
        self._children = children
        self._first_checkpoint_s = first_checkpoint_s
        self._own_end_s = own_end_s
        # The joining deadline counts from here, before Ray starts, as it does on workers.
        self._started_s = time.monotonic()
        self._inbox = life.Inbox()
        self._rules = Rules(
            hosts=tuple(host.name for host in instance.environment.ranked(instance.cluster)),
            cluster=instance.cluster,
            grace_s=instance.request.chosen_grace_s,
            starts_ahead=instance.request.workload.prepares_ahead,
            on_stall=instance.request.limits.on_stall,
            max_restarts=instance.request.limits.max_restarts,
        )
        # A thread of its own, so that processes, disks and the log cannot delay the heartbeats.
        self._network = LoopThread("control")
        self._control = HeadControl(
            token=instance.payload.token(),
            identity=instance.identity,
            hosts=self._rules.hosts[1:],
            report=bound_to_this_loop(self._on_report),
            silence_s=instance.cluster.silence_s,
            answer=self._answer_client,
        )
        self._loop = asyncio.get_running_loop()
        self._stacks: Collection | None = None
        self._ray: RayNode | None = None
        self._driver: DriverRun | None = None
        self._gcs_address = ""
        """``IP:port``, once the cluster is formed."""
        self._owners: Owners | None = None
        self._described: set[str] | None = None
        self._checkpoints: dict[str, bool] = {}
        """Whether each worker has saved something, as far as it has answered."""
        self._files_left: list[ResultFile] = []
        self._farewell_until_s = 0.0
        # Another process asks the GCS, because Ray's client brings threads and 90 MB, and this
        # process outlives Ray.
        self._watcher = NodeWatcher(
            nodes_socket(instance.environment.ray_temp_dir, instance.ports.gcs)
        )
        self._tasks: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        self._inbox.put(life.StopRequested())

    def fail(self, error: Exception) -> None:
        self._inbox.put(life.Failed(error))

    def hold(self) -> None:
        """Do not begin the work before ``release``."""
        self._inbox.put(life.Checking(self._instance.name))

    def release(self) -> None:
        self._inbox.put(life.Checked(self._instance.name))

    async def run(self) -> ExitStatus:
        """Run the job; return the exit status of this instance, and so of the job.

        The status is that of the first cause of its end.
        """
        environment = self._instance.environment
        host = environment.current_host
        named = environment.addresses.get(environment.current_host)
        address = await find_own_address(host, named, environment.network_interface)
        self._instance = self._instance.at(
            LOOPBACK if address is None and self._is_local else address
        )
        await self._listen()
        self._start_ray()
        policy, decisions = HeadPolicy.begin(self._rules, self._started_s)
        while True:
            for decision in decisions:
                match decision:
                    case life.End(cause):
                        return self._conclude(cause)
                self._carry_out(decision)
            # Set after every event, so that the polling always ends.
            if policy.watches_nodes:
                self._watcher.start(self._inbox.put)
            else:
                self._watcher.stop()
            event = await self._next_event(policy.wakes_at_s)
            policy, decisions = policy.take(event, time.monotonic())

    async def _next_event(self, wakes_at_s: float | None) -> life.Event:
        event = await self._inbox.take(wakes_at_s)
        if event is not None:
            return event
        silent = self._control.silent
        # The loss of a worker that is not silent any more is on its way from the control's thread.
        await asyncio.sleep(0)
        return await self._inbox.take(time.monotonic()) or life.Tick(silent)

    async def end(self, status: ExitStatus) -> None:
        """Notify the workers, end Ray and all processes here, and wait for the workers' goodbye."""
        for task in self._tasks:
            task.cancel()
        self._watcher.stop()
        self._network.call(self._control.tell_all, control.encode(life.JobEnded(status.headline)))
        if self._ray:
            self._ray.kill()
        # Both at once, because workers end their Ray meanwhile, and all instances must end within
        # two seconds.
        await asyncio.gather(self._children.end_all(END_GRACE_S), self._await_farewell())
        # A full disk must not change the job's end; the manifest then lists only the head's files.
        with contextlib.suppress(OSError):
            complete_manifest(self._instance.environment.paths.model, self._files_left)
        if self._driver:
            self._driver.close()
        await self._network.carry_out(self._control.close())
        self._network.close()
        if self._ray:
            self._ray.close()

    async def _await_farewell(self) -> None:
        # A worker may have asked already, and then has more time.
        self._extend_farewell(FAREWELL_S)
        while self._control.joined and time.monotonic() < self._farewell_until_s:
            await asyncio.sleep(PROBE_S)

    # Events

    def _on_report(self, report: Report) -> None:
        match report:
            case MessageReceived(host, message):
                match control.decode(message, control.TO_HEAD, host):
                    case control.OutputsClaimed(keys=keys, size_bytes=size_bytes):
                        # Workers ask this after the end is decided, when the queue is not read any
                        # more.
                        self._answer_claim(host, keys, size_bytes)
                    case control.FileLeft(name, size_bytes, sha256):
                        self._files_left.append(described_file(name, size_bytes, sha256))
                        # With a thousand workers the descriptions take longer than one farewell.
                        self._extend_farewell(FAREWELL_S)
                    case control.CheckpointFound(_, is_there):
                        self._checkpoints[host] = is_there
                    case control.StacksPart() as part:
                        if self._stacks is not None:
                            self._stacks.take(part)
                    # An unknown kind of message, for example of a later version of raysm.
                    case None:
                        pass
                    case event:
                        self._inbox.put(event)
            case _:
                self._inbox.put(report)

    async def _answer_client(self, question: Mapping[str, Any]) -> str:
        """Answer a client on the user's machine, in the loop of the control channel."""
        from raysm.core.protocol.stacks import pack

        if question.get("kind") != "stacks":
            return ""
        wanted = control.Wanted(native=question.get("native") is True, answers=True)
        reading = asyncio.run_coroutine_threadsafe(self.read_stacks(wanted), self._loop)
        snapshots = await asyncio.wrap_future(reading)
        return pack([process for snapshot in snapshots for process in snapshot.processes])

    async def read_stacks(self, wanted: control.Wanted = control.LEAN) -> "list[Snapshot]":
        """Return the stacks of the processes of all instances, and what they do."""
        # Imported when it is needed, because every start of an instance waits for imports.
        from raysm.instance.stacks import Collection, Reader

        if self._stacks is None:
            instance = self._instance
            reader = Reader(
                instance.name, instance.has_own_network, self._children, instance.inherited
            )
            self._stacks = Collection(reader, self._tell_all)
        return await self._stacks.read(self._control.joined, wanted)

    async def _watch_for_stalls(self, stall_s: float) -> None:
        """Put a stall of the job, and its end, into the queue of events; see ``stall``."""
        driver = self._driver
        began_s = time.monotonic()
        # Imported when it is needed: most jobs are short, or print.
        await asyncio.sleep(stall_s / 5)
        from raysm.instance.stall import StallWatch

        takes_calls = self._instance.request.workload.takes_calls
        watch = StallWatch(stall_s, began_s, takes_calls=takes_calls)
        while driver is not None and driver is self._driver:
            event: life.Event | None = watch.take_line(driver.line_s)
            wait_s = watch.next_look_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, LINE_POLL_S))
            else:
                snapshots = await self.read_stacks()
                event = watch.take_line(driver.line_s) or event
                event = watch.take_look(snapshots, time.monotonic()) or event
            if isinstance(event, life.Stalled):
                # Only now, because a rank's threads wait while torch writes its records.
                snapshots = await self.read_stacks(control.Wanted(answers=True))
                event = watch.describe(snapshots, time.monotonic())
                if driver is not self._driver or watch.take_line(driver.line_s) is not None:
                    continue
            if event is not None:
                self._inbox.put(event)

    def _tell_all(self, message: control.Message) -> None:
        self._network.call(self._control.tell_all, message)

    def _answer_claim(self, host: str, keys: Sequence[str], size_bytes: int) -> None:
        paths = self._instance.environment.paths
        if self._owners is None:
            # The first question comes after the end of the driver, when the head's outputs are
            # complete.
            self._owners = Owners(self._instance.name, read_outputs(paths))
            if (manifest := own_manifest(paths.model)) is not None:
                self._described = {model_key(file.name) for file in manifest.files}
        taken = set(self._owners.claim(host, keys))
        undescribed: list[str] = []
        # Each question extends the wait, because a worker with many files asks several times.
        wait_s = FAREWELL_S
        # Without a manifest, workers need not describe their files.
        if self._described is not None:
            undescribed = [key for key in keys if key not in taken and key not in self._described]
            wait_s += size_bytes / DIGEST_BYTES_PER_S
        answer = control.encode(life.OutputsTaken(tuple(taken), tuple(undescribed)))
        self._network.call(self._control.tell, host, answer)
        self._extend_farewell(wait_s)

    def _extend_farewell(self, wait_s: float) -> None:
        self._farewell_until_s = max(self._farewell_until_s, time.monotonic() + wait_s)

    async def _probe_gcs(self) -> None:
        while not await own_port_answers(LOOPBACK, self._instance.ports.gcs):
            await asyncio.sleep(PROBE_S)
        self._inbox.put(life.GcsAnswers())

    # Decisions

    def _carry_out(self, decision: life.Decision) -> None:
        match decision:
            case life.Announce(name, host, detail):
                emit_event(
                    State(
                        name=name,
                        host=host,
                        detail=detail,
                        count=decision.count,
                        total=decision.total,
                    )
                )
            case life.Remark(text):
                remark(text)
            case life.InviteToRay(hosts):
                for host in hosts:
                    self._network.call(
                        self._control.tell,
                        host,
                        control.encode(life.Invited(self._instance.ports.gcs)),
                    )
            case life.StartDriver():
                self._driver = self._start_driver(None)
            case life.BeginWork(address):
                self._begin_work(address)
            case life.TerminateDriver():
                assert self._driver is not None
                self._driver.terminate()
            case life.KillDriver():
                assert self._driver is not None
                self._driver.kill()
            case life.RestartDriver():
                self._spawn(self._restart_driver())
            case _:
                raise AssertionError(f"{decision} is for workers")

    def _conclude(self, cause: life.Cause) -> ExitStatus:
        """Return the exit status for ``cause``, or raise it.

        A failure that the driver has recorded comes before it.
        """
        match cause:
            case life.Stopped(in_time):
                if self._driver:
                    self._driver.kill()
                return ExitStatus(0 if in_time else STOPPED, stopped=True)
            case life.DriverEnded():
                assert self._driver is not None
                return self._driver.exit_status(cause)
            case Exception():
                # The driver recorded its failure before this cause came, but has not exited yet.
                status = self._driver.own_exit_status() if self._driver else None
                if self._driver and isinstance(cause, MetricDiverged):
                    # SIGTERM would make a script save the diverged state over its last checkpoint.
                    self._driver.kill()
                if status is None:
                    raise cause
                return status
        raise AssertionError(f"a head does not end by {cause}")

    @property
    def _is_local(self) -> bool:
        """True if all instances of the job are on this machine's loopback."""
        named = self._instance.environment.addresses.get(self._instance.name)
        return is_loopback(named) if named else len(self._rules.hosts) == 1

    async def _listen(self) -> None:
        # Without workers on other machines the port accepts connections from this machine only.
        port = self._instance.ports.control
        try:
            await self._network.carry_out(
                self._control.start(LOOPBACK if self._is_local else "0.0.0.0", port)
            )
        except OSError as error:
            raise ClusterNotFormed(
                f"the head {self._instance.name} cannot listen on its control port {port}: "
                f"{error.strerror}; give another one by the request's ports"
            ) from error

    def _start_ray(self) -> None:
        command = self._instance.ray_command(None)
        self._ray = ray = RayNode(self._children, command, self._instance.ray_environment())
        ray.ended.add_done_callback(lambda _: self._inbox.put(life.RayEnded(ray.why())))
        self._spawn(self._probe_gcs())

    def _begin_work(self, address: str) -> None:
        assert self._ray is not None
        # Ray's output is not in the log, except these warnings, which are complete when the cluster
        # is formed.
        for warning in self._ray.read_warnings():
            remark(warning)
        self._gcs_address = f"{address}:{self._instance.ports.gcs}"
        if self._driver:
            self._driver.go(self._gcs_address)
        else:
            self._driver = self._start_driver(self._gcs_address)
        self._spawn(self._watch_requests())
        if self._instance.request.limits.spot and self._instance.environment.has_checkpoints:
            self._watch("the watch for a first checkpoint", self._watch_first_checkpoint())
        self._begin_to_watch()
        named = self._instance.environment.addresses.get(self._instance.name, address)
        shown = LOOPBACK if is_loopback(named) else address
        control = self._instance.ports.control
        emit_event(
            State(name="control", host=self._instance.name, address=f"http://{shown}:{control}")
        )
        # The dashboard's process starts at the first request to its port, where this instance
        # already listens.
        port = self._instance.ports.dashboard
        try:
            check_listener(LOOPBACK, port)
        except ForeignListener as error:
            remark(f"{error}; the job goes on without its dashboard")
        else:
            emit_event(
                State(name="dashboard", host=self._instance.name, address=f"http://{shown}:{port}")
            )

    def _begin_to_watch(self) -> None:
        if stall_s := self._instance.request.limits.stall_s:
            self._watch("the watch for stalls", self._watch_for_stalls(stall_s))

    async def _restart_driver(self) -> None:
        assert self._driver is not None
        # It waits for the rest of the output.
        await asyncio.to_thread(self._driver.close)
        try:
            self._driver = self._start_driver(self._gcs_address)
        except Exception as error:
            self._inbox.put(life.Failed(error))
        self._begin_to_watch()

    async def _watch_requests(self) -> None:
        """Fail the job when Ray waits too long for resources that no instance has.

        In a session this is only logged.
        """
        workload = self._instance.request.workload
        unmet = UnmetRequests(
            self._instance.cluster.placement_timeout_s
            if workload.fails_on_unmet_requests
            else math.inf
        )
        waiting = WaitingRequests() if workload.names_waiting_requests else None
        path = pending_socket(self._instance.environment.ray_temp_dir, self._instance.ports.gcs)
        try:
            await watch_pending(path, observe(unmet, waiting), remark)
        except InvalidRequest as error:
            self._inbox.put(life.Failed(error))

    async def _watch_first_checkpoint(self) -> None:
        def ask_others() -> frozenset[str]:
            self._tell_all(control.encode(control.CheckpointWanted()))
            return self._control.joined

        await warn_without_checkpoint(
            self._instance.has_checkpoint,
            ask_others,
            self._checkpoints,
            remark,
            self._first_checkpoint_s,
        )

    def _start_driver(self, address: str | None) -> DriverRun:
        watch = DivergenceWatch(self._instance.request, remark, self._end_at_divergence)
        return DriverRun(self._instance, self._children, address, self._inbox.put, watch.look)

    def _end_at_divergence(self, sentence: str, is_reported: bool) -> None:
        """End the job; called in a thread that copies the driver's output."""
        failed = life.Failed(MetricDiverged(sentence))
        wait_s = self._own_end_s if is_reported else 0.0
        self._loop.call_soon_threadsafe(self._loop.call_later, wait_s, self._inbox.put, failed)

    def _watch(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin ``work`` in a task of this name; its failure is only logged."""

        async def watch() -> None:
            try:
                await work
            except Exception as error:
                remark(f"{name} has ended: {type(error).__name__}: {error}; the job goes on")

        self._tasks.append(asyncio.create_task(watch(), name=name))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

"""Run a script written for torchrun: an agent on each instance, the script in processes of its own.

The agents are plain actors: a script makes its own process group, so Ray Train would only cost time
(5 s before the first worker runs on two cores, measured, against 0.2 s).
"""

import contextlib
import dataclasses
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from raysm.core.protocol import payload
from raysm.core.protocol.events import line
from raysm.core.protocol.machine import others_first
from raysm.core.protocol.payload import Payload
from raysm.errors import InvalidRequest, WorkerFailed
from raysm.features.training.cluster.launch import state_folders
from raysm.features.training.cluster.launch.failure_attribution import (
    CAUSE_S,
    Failure,
    as_refusal,
    attribute_failure,
    blame_early_end,
    find_cause,
    is_consequence,
)
from raysm.features.training.cluster.launch.launch import (
    Launch,
    NodesLost,
    Stopped,
    grace_of_workers,
    launch_training,
    say,
)
from raysm.features.training.cluster.launch.output import AGENT, END, ERROR, OUT, STOP, Wire
from raysm.features.training.cluster.launch.placement import (
    DEFAULTS,
    Group,
    Place,
    fill_arguments,
    place,
    torchrun_variables,
)
from raysm.features.training.cluster.usage import Usage
from raysm.features.training.request import TorchScript
from raysm.instance import die_with_parent, environment
from raysm.instance.environment import Environment
from raysm.instance.ray_internals import BACKPRESSURE, spare_options, spare_pydantic
from raysm.instance.work import folders
from raysm.instance.work.folders import fill_folders
from raysm.instance.work.nodes import Node, only_on
from raysm.instance.work.program import command_line
from raysm.instance.work.runner import Runner, naming_what_is_missing

END_GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL for the other workers once one failed: most hang in a collective
call."""

OWN_END_S = 1.0
"""Seconds that the others have to end by themselves once a worker failed with an exit code: it may
have failed because one of them is ending, which is about to say why. One that a signal killed did
not wait for another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    place: Place
    script: str
    is_command: bool
    args: tuple[str, ...]
    in_state: bool
    fill: bool
    group: Group
    wire: Wire
    threads: int | None
    grace_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    rank: int
    status: int
    at_s: float
    was_ended: bool = False
    """The agent ended it, because another worker had failed or a stop was asked for."""


class Agent:
    """An actor that runs the workers of one instance."""

    def __init__(self, own_end_s: float = OWN_END_S) -> None:
        self._own_end_s = own_end_s
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._changing = threading.Lock()
        self._ending = False
        self._killed: set[subprocess.Popen[bytes]] = set()

    def free_port(self) -> int:
        with socket.socket() as probe:
            # Another process may take it in between: then a worker fails, and all are started
            # again.
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port

    def digest_state(self) -> state_folders.State:
        return state_folders.digest_state(_state_folder())

    def read_state(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        yield from folders.read_pieces(_state_folder(), names)

    def copy_state(self, agent: ActorHandle, of_rank_0: state_folders.State) -> None:
        """Make this instance's state folder equal to that of rank 0, which ``agent`` reads."""
        names = state_folders.remove_others(_state_folder(), of_rank_0)
        if names:
            stream = agent.read_state.options(
                num_returns="streaming",
                **spare_options(
                    BACKPRESSURE, {"_generator_backpressure_num_objects": folders.UNDER_WAY}
                ),
            ).remote(names)
            folders.write_pieces((ray.get(piece) for piece in stream), _state_folder())

    def run(self, task: Task) -> tuple[Exit, ...]:
        instance = environment.read()
        source = instance.payload / payload.SOURCE
        task = dataclasses.replace(task, args=fill_folders(task.args, instance))
        self._ending = False
        self._killed.clear()

        def on_message(message: bytes) -> None:
            with self._changing:
                self._end(task.grace_s if message == STOP else END_GRACE_S)

        # The agent's lines go through the relay too, so that they are in the head's log before the
        # job ends.
        with task.wire.listening(task.place.first_rank, AGENT, on_message) as head:

            def send(text: str) -> None:
                with contextlib.suppress(OSError):  # a head that is gone needs no figures
                    head.sendall(f"{text}\n".encode())

            if task.in_state:
                folder = folders.link_state_folder(
                    instance, source, lambda text: send(f"raysm: {text}")
                )
            else:
                folder = folders.make_folder(instance, source)
            with self._changing:
                if self._ending:
                    return ()
                for local_rank, rank in enumerate(task.place.ranks):
                    self._running[rank] = _start(task, local_rank, source, folder)
            usage = Usage(
                instance.current_host,
                lambda event: send(line(event)),
                lambda text: send(f"raysm: {text}"),
                has_gpus=task.place.gpus > 0,
            )
            # Each worker is a session of its own, and so goes before Ray's.
            with usage, others_first():
                return self._watch()

    def _watch(self) -> tuple[Exit, ...]:
        exits: list[Exit] = []
        ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        for rank, popen in self._running.items():
            # A thread that waits costs nothing; looking at them every 20 ms cost 1 % of a core that
            # they need.
            threading.Thread(
                target=_await, args=[rank, popen, ended], daemon=True, name=f"rank-{rank}"
            ).start()
        end_at: float | None = None
        while self._running:
            try:
                rank, status = ended.get(
                    timeout=None if end_at is None else max(0.0, end_at - time.monotonic())
                )
            except queue.Empty:
                end_at = None
                with self._changing:
                    self._end_once()
                continue
            with self._changing:
                popen = self._running.pop(rank)
                _signal_group(popen, signal.SIGKILL)  # what it left behind holds its output open
                # The kernel may have killed one, for lack of memory, before it got the signal to
                # end.
                was_ended = self._ending and (status != -signal.SIGKILL or popen in self._killed)
                exits.append(Exit(rank=rank, status=status, at_s=time.time(), was_ended=was_ended))
                if status < 0:
                    self._end_once()
            if status > 0 and end_at is None:
                end_at = time.monotonic() + self._own_end_s
        return tuple(exits)

    def _end_once(self) -> None:
        if not self._ending:
            self._end(END_GRACE_S)

    def _end(self, grace_s: float) -> None:
        """Send SIGTERM to the workers that are left, and SIGKILL after ``grace_s``."""
        self._ending = True
        workers = list(self._running.values())
        for popen in workers:
            with contextlib.suppress(ProcessLookupError):
                popen.send_signal(signal.SIGTERM)
        # A timer and not a wait: the lock is held, and workers that end meanwhile must be reaped.
        killing = threading.Timer(grace_s, self._kill, args=[workers])
        killing.daemon = True
        killing.start()

    def _kill(self, workers: list["subprocess.Popen[bytes]"]) -> None:
        for popen in workers:
            if popen.returncode is None:
                self._killed.add(popen)
                _signal_group(popen, signal.SIGKILL)


def _state_folder() -> Path:
    instance = environment.read()
    return instance.paths.state(instance.current_host)


def _start(task: Task, local_rank: int, source: Path, folder: Path) -> "subprocess.Popen[bytes]":
    rank = task.place.first_rank + local_rank
    errors = folder.parent / "worker-errors"
    errors.mkdir(exist_ok=True)
    variables = {
        **torchrun_variables(task.place, local_rank, task.group, task.threads),
        # torch.distributed.elastic's @record writes an exception into this file.
        "TORCHELASTIC_ERROR_FILE": str(errors / f"{task.group.attempt}-{rank}.json"),
    }
    args = fill_arguments(task.args, variables) if task.fill else task.args
    words = command_line(task.script, args, source=source, is_command=task.is_command)
    with task.wire.connect(rank, OUT) as out, task.wire.connect(rank, ERROR) as error:
        return subprocess.Popen(
            die_with_parent.wrap(words),
            env={**DEFAULTS, **environment.child_environment(variables)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out.fileno(),
            stderr=error.fileno(),
            start_new_session=True,
        )


def _await(
    rank: int, popen: "subprocess.Popen[bytes]", ended: "queue.SimpleQueue[tuple[int, int]]"
) -> None:
    ended.put((rank, popen.wait()))


def _signal_group(popen: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, number)


TASK_POLL_S = 0.5


def run_torch_script(
    workload: TorchScript, payload: Payload, environment: Environment, address: str = "auto"
) -> None:
    launch_training(
        payload,
        environment,
        address=address,
        place=partial(
            place, workers_per_instance=workload.workers_per_instance, spawns=workload.spawns
        ),
        max_restarts=workload.max_restarts,
        attempts=lambda launch: _Script(workload, launch).attempt,
    )


class _Script:
    def __init__(self, workload: TorchScript, launch: Launch) -> None:
        self._workload = workload
        self._launch = launch
        self._relay = launch.relay
        self._stop = launch.stop
        self._grace_s = grace_of_workers(launch.payload.request.chosen_grace_s)
        self._agents: dict[str, ActorHandle] = {}

    def attempt(self, places: tuple[Place, ...], number: int) -> None:
        self._relay.forget()
        try:
            tasks = self._tasks(places, number)
        except RayActorError as error:
            # The agent of the first place died: no other has been called yet.
            raise NodesLost([places[0].node], "its worker process died") from error
        exits, lost = self._wait(tasks)
        self._relay.drain()
        if self._stop.asked:
            raise Stopped(
                clean=len(exits) == tasks[0].group.world_size
                and not any(item.status for item in exits)
            )
        if lost:
            raise NodesLost(lost, "it does not answer any more")
        cause = self._cause(exits, places)
        if cause is not None:
            raise as_refusal(cause) or cause

    def _cause(self, exits: Collection[Exit], places: Sequence[Place]) -> WorkerFailed | None:
        hosts = {rank: item.node.host for item in places for rank in item.ranks}
        failures = []
        for item in exits:
            if item.status:
                error = attribute_failure(
                    item.rank, hosts[item.rank], item.status, self._relay.tail(item.rank)
                )
                failures.append(Failure(error=error, at_s=item.at_s, was_ended=item.was_ended))
        cause = find_cause(failures)
        ended_well = [
            (item.rank, hosts[item.rank])
            for item in exits
            if not item.status and not item.was_ended
        ]
        return None if cause is None else blame_early_end(cause, ended_well)

    def _tasks(self, places: tuple[Place, ...], number: int) -> list[Task]:
        agents = [self._agent(item.node, item.gpus) for item in places]
        if len(places) > 1 and self._launch.environment.has_checkpoints:
            self._compare_states(places, agents)
        # The port must be free on the instance of rank 0.
        port = ray.get(agents[0].free_port.remote())
        group = self._launch.group(places, number, self._workload.max_restarts, port)
        return [
            Task(
                place=item,
                script=self._workload.script,
                is_command=self._workload.command,
                args=self._launch.payload.request.script_args,
                in_state=self._workload.in_state,
                fill=self._workload.spawns,
                group=group,
                wire=self._relay.wire,
                threads=self._launch.threads,
                grace_s=self._grace_s,
            )
            for item in places
        ]

    def _compare_states(self, places: tuple[Place, ...], agents: list[ActorHandle]) -> None:
        """Say if ranks would load other checkpoints than rank 0.

        With ``share_state``, copy rank 0's state to the other instances.
        """
        found = self._call_all(places, [agent.digest_state.remote() for agent in agents])
        of_rank_0, *others = found
        states = {item.node.host: of_place for item, of_place in zip(places, found, strict=True)}
        differences = state_folders.describe_differences(states)
        if not self._workload.share_state:
            if differences:
                say(
                    f"{differences}. {state_folders.RISK}, or add --share-state, which copies "
                    "rank 0's to the other instances"
                )
            return
        if differences and not of_rank_0:
            raise InvalidRequest(
                f"{differences}: share_state would remove it",
                remedy="leave out --share-state, or remove the state of the other instances",
            )
        if all(of_place == of_rank_0 for of_place in others):
            return
        copies = [agent.copy_state.remote(agents[0], of_rank_0) for agent in agents[1:]]
        self._call_all(places[1:], copies)
        say(f"copied the state of {places[0].node.host} (rank 0) to the other instances")

    def _call_all(
        self, places: Sequence[Place], calls: "Sequence[ray.ObjectRef[Any]]"
    ) -> list[Any]:
        answers = []
        for item, call in zip(places, calls, strict=True):
            try:
                answers.append(ray.get(call))
            except RayActorError as error:
                del self._agents[item.node.node_id]
                raise NodesLost([item.node], "its worker process died") from error
        return answers

    def _agent(self, node: Node, gpus: int = 0) -> ActorHandle:
        if node.node_id not in self._agents:
            # num_gpus makes Ray show it the GPUs of its workers together; each takes that of its
            # LOCAL_RANK.
            self._agents[node.node_id] = (
                ray.remote(Agent)
                .options(
                    # No CPU: the workers use them, and the agent only waits.
                    num_cpus=0,
                    num_gpus=gpus,
                    scheduling_strategy=only_on(node.node_id),
                )
                .remote()
            )
        return self._agents[node.node_id]

    def _wait(self, tasks: list[Task]) -> tuple[list[Exit], list[Node]]:
        """Run all tasks to their end.

        Once a task has failed, end the other tasks; once a stop is asked for, end all of them.
        """
        running = {self._agent(task.place.node).run.remote(task): task for task in tasks}
        places = [task.place for task in tasks]
        exits: list[Exit] = []
        lost: list[Node] = []
        is_stopping = False
        give_up: float | None = None
        failed_at: float | None = None
        while running and (give_up is None or time.monotonic() < give_up):
            if self._stop.asked and not is_stopping:
                is_stopping = True
                self._relay.send(AGENT, STOP)
                give_up = time.monotonic() + self._grace_s + END_GRACE_S
            ready, _ = ray.wait(list(running), num_returns=1, timeout=TASK_POLL_S)
            for reference in ready:
                node = running.pop(reference).place.node
                try:
                    exits += ray.get(reference)
                except RayActorError:
                    lost.append(node)
                    del self._agents[node.node_id]
            if give_up is None and (lost or any(item.status for item in exits)):
                failed_at = failed_at or time.monotonic()
                cause = self._cause(exits, places)
                # The worker whose end caused the failure may need a moment to report why.
                is_settled = (
                    cause is None
                    or not is_consequence(cause)
                    or time.monotonic() - failed_at > CAUSE_S
                )
                if lost or is_settled:
                    self._relay.send(AGENT, END)
                    give_up = time.monotonic() + self._launch.payload.request.cluster.silence_s
        # An instance whose workers have not ended in time counts as lost.
        return exits, lost + [task.place.node for task in running.values()]


class TorchScriptRunner(Runner[TorchScript]):
    def run(self, address: str) -> None:
        spare_pydantic()  # the user's code runs in other processes
        with naming_what_is_missing(self.workload):
            run_torch_script(self.workload, self.payload, self.environment, address)

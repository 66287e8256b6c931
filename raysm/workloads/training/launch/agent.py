"""The workers of one instance: child processes with torchrun's variables, watched, and ended together.

An actor on each instance, as torchrun has an agent on each node. It returns the ``Exit`` of each worker, the first
failed one first; their output goes straight to the head. The head ends workers early by the agent's own connection:
an actor whose methods may be called while one runs has a main thread that wakes a hundred times a second, and takes 1
% of a core from the workers.
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raysm.bootstrap import die_with_parent, environment
from raysm.contract import payload
from raysm.contract.events import Event, line
from raysm.contract.machine import let_others_first
from raysm.workloads import script_main
from raysm.workloads.state_folder import fill_folders
from raysm.workloads.training.launch.output import AGENT, ERROR, OUT, STOP, Wire
from raysm.workloads.training.launch.placement import DEFAULTS, Group, Place, fill_arguments, torchrun_variables
from raysm.workloads.training.measure.usage import Usage
from raysm.workloads.training.results import working_folder

__all__ = ["END_GRACE_S", "Agent", "Exit", "Task"]

END_GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL for the other workers once one failed: most hang in a collective call."""

OWN_END_S = 1.0
"""Seconds that the others have to end by themselves once a worker failed with an exit code: it may have failed
because one of them is ending, which is about to say why. One that a signal killed did not wait for another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What the workers of one instance do."""

    place: Place
    """Their instance and ranks."""
    script: str
    """The script, relative to the source."""
    args: tuple[str, ...]
    """Its arguments."""
    in_state: bool
    """Whether they run in the instance's state folder."""
    fill: bool
    """True replaces ``{rank}`` and its like in them."""
    group: Group
    """What all workers share."""
    wire: Wire
    """Where their output goes."""
    threads: int | None
    """OMP_NUM_THREADS of each; None is an even share of the instance's CPUs."""
    grace_s: float
    """Seconds that they have after SIGTERM where a stop is asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """How a worker ended."""

    rank: int
    """Which one."""
    status: int
    """Its exit code, or minus the signal that killed it."""
    at_s: float
    """When that was seen, seconds since the epoch."""
    was_ended: bool = False
    """True where the agent ended it, because another one had failed or a stop was asked for."""


class Agent:
    """Runs the workers of one instance; an actor."""

    def __init__(self, own_end_s: float = OWN_END_S) -> None:
        """Begin with nothing; ``own_end_s`` is what ``OWN_END_S`` says."""
        self._own_end_s = own_end_s
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._changing = threading.Lock()
        self._ending = False
        self._killed: set[subprocess.Popen[bytes]] = set()

    def free_port(self) -> int:
        """Return a port that nothing listens on here."""
        with socket.socket() as probe:
            # Another process may take it in between: then a worker fails, and all are started again.
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port

    def run(self, task: Task) -> tuple[Exit, ...]:
        """Start the workers and wait until all have ended; end them once one fails or the head says so."""
        instance = environment.read()
        source = instance.payload / payload.SOURCE
        task = dataclasses.replace(task, args=fill_folders(task.args, instance))
        let_others_first()  # each worker is a session of its own
        self._ending = False
        self._killed.clear()

        def heed(word: bytes) -> None:
            with self._changing:
                self._end(task.grace_s if word == STOP else END_GRACE_S)

        # Like a worker's output: so what is said here is on the head's, whole, before the job ends.
        with task.wire.heeding(task.place.first_rank, AGENT, heed) as head:
            if task.in_state:
                folder = working_folder.link_state_folder(instance, source, partial(_send_remark, head))
            else:
                folder = working_folder.make_folder(instance, source)
            with self._changing:
                if self._ending:
                    return ()
                for local_rank, rank in enumerate(task.place.ranks):
                    self._running[rank] = _start(task, local_rank, source, folder)
            emit_event, say = partial(_send_event, head), partial(_send_remark, head)
            with Usage(instance.current_host, emit_event, say, has_gpus=task.place.gpus > 0):
                return self._watch()

    def _watch(self) -> tuple[Exit, ...]:
        exits: list[Exit] = []
        ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        for rank, popen in self._running.items():
            # A thread that waits costs nothing; looking at them every 20 ms cost 1 % of a core that they need.
            threading.Thread(target=_await, args=[rank, popen, ended], daemon=True, name=f"rank-{rank}").start()
        end_at: float | None = None
        while self._running:
            try:
                rank, status = ended.get(timeout=None if end_at is None else max(0.0, end_at - time.monotonic()))
            except queue.Empty:
                end_at = None
                with self._changing:
                    self._end_once()
                continue
            with self._changing:
                popen = self._running.pop(rank)
                _signal_group(popen, signal.SIGKILL)  # what it left behind holds its output open
                # One that was told to end may have been killed by the kernel before, for want of memory.
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
        """Send SIGTERM to the workers that are left, and SIGKILL to what is left of them after ``grace_s``."""
        self._ending = True
        workers = list(self._running.values())
        for popen in workers:
            with contextlib.suppress(ProcessLookupError):
                popen.send_signal(signal.SIGTERM)
        # Not a wait here: the lock is held, and workers that end meanwhile have to be reaped.
        killing = threading.Timer(grace_s, self._kill, args=[workers])
        killing.daemon = True
        killing.start()

    def _kill(self, workers: list["subprocess.Popen[bytes]"]) -> None:
        for popen in workers:
            if popen.returncode is None:
                self._killed.add(popen)
                _signal_group(popen, signal.SIGKILL)


def _start(task: Task, local_rank: int, source: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Start one worker in a session of its own; it dies with this process."""
    rank = task.place.first_rank + local_rank
    errors = folder.parent / "worker-errors"
    errors.mkdir(exist_ok=True)
    variables = {
        **torchrun_variables(task.place, local_rank, task.group, task.threads),
        # Where torch.distributed.elastic's @record writes an exception.
        "TORCHELASTIC_ERROR_FILE": str(errors / f"{task.group.attempt}-{rank}.json"),
    }
    args = fill_arguments(task.args, variables) if task.fill else task.args
    with task.wire.connect(rank, OUT) as out, task.wire.connect(rank, ERROR) as error:
        return subprocess.Popen(
            die_with_parent.wrap(script_main.command(str(source / task.script), args)),
            env={**DEFAULTS, **environment.child_environment(variables)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out.fileno(),
            stderr=error.fileno(),
            start_new_session=True,
        )


def _await(rank: int, popen: "subprocess.Popen[bytes]", ended: "queue.SimpleQueue[tuple[int, int]]") -> None:
    ended.put((rank, popen.wait()))


def _send_event(head: socket.socket, event: Event) -> None:
    _send(head, line(event))


def _send_remark(head: socket.socket, text: str) -> None:
    _send(head, f"raysm: {text}")


def _send(head: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # a head that is gone needs no figures
        head.sendall(f"{text}\n".encode())


def _signal_group(popen: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, number)

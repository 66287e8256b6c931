"""Run one function over many blocks on all instances; each task receives only its own block.

A new block begins when the caller takes a value, so memory depends neither on the number of blocks
nor on how fast the caller consumes the values.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import ray
from ray.exceptions import (
    RayActorError,
    RayError,
    RayTaskError,
    TaskUnschedulableError,
    UnserializableException,
)

from raysm.core.protocol import payload
from raysm.errors import (
    BlockFailed,
    InstanceLost,
    InvalidConfig,
    InvalidRequest,
    MissingDependency,
    NoRoom,
)
from raysm.instance import environment
from raysm.instance.work.failure import failure_of, task_traceback
from raysm.instance.work.file_names import input_files
from raysm.instance.work.nodes import PlacedBlock, Presence, ask_every_node, tasks_at_once
from raysm.instance.work.workers import Processes, Tasks, Workers

__all__ = [
    "FileBlock",
    "LATER",
    "PlacedBlock",
    "Record",
    "file_blocks",
    "instances",
    "map_blocks",
    "task_slots",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileBlock(PlacedBlock):
    """One file of a channel."""

    channel: str
    name: str
    size_bytes: int
    host: str | None = None
    """The only instance that has it; None if all have it."""

    @property
    def path(self) -> Path:
        return environment.read().paths.channel(self.channel) / self.name

    def __str__(self) -> str:
        return f"file {self.channel}/{self.name}" + (f" on {self.host}" if self.host else "")


def file_blocks(channel: str) -> list[FileBlock]:
    """List a channel's files, one block each, sorted by name.

    Any instance may work on a file of a FullyReplicated channel. A file of a ShardedByS3Key channel
    goes to the instance that has it; each instance is asked for its list.

    Raises:
        InvalidRequest: The job has no such channel, or files lie on a head that only coordinates.
    """
    instance = environment.read()
    inputs = payload.read_request(instance.payload).inputs
    if channel not in inputs:
        raise InvalidRequest(
            f"the job has no channel {channel!r}; it has {', '.join(sorted(inputs)) or 'none'}"
        )
    # All instances have the same files, so this one's list is that of all.
    if inputs[channel].distribution == "FullyReplicated":
        return list_files(instance.paths.channel(channel), channel, None)
    blocks: list[FileBlock] = []
    # A head that only coordinates is asked too: files that lie there would be ignored silently.
    for node, answer in ask_every_node(_list_here, channel, max_retries=3).items():
        listed = ray.get(answer)
        if listed and not node.cpus:
            raise InvalidRequest(
                f"{len(listed)} files of the channel {channel!r} are on {node.host}, "
                "which only coordinates; let the head compute, or make the channel FullyReplicated"
            )
        blocks.extend(listed)
    # Sorted by name, because answers come in any order, and the order must be that of an earlier
    # run.
    return sorted(blocks, key=lambda block: (block.name, block.host or ""))


def _list_here(channel: str) -> list[FileBlock]:
    instance = environment.read()
    return list_files(instance.paths.channel(channel), channel, instance.current_host)


def list_files(folder: Path, channel: str, host: str | None) -> list[FileBlock]:
    return [
        FileBlock(channel=channel, name=name, size_bytes=file.stat().st_size, host=host)
        for name, file in input_files(folder)
    ]


B = TypeVar("B")
V = TypeVar("V")

TRANSIENT = (OSError, MemoryError)
"""Errors that the instance, the network or a disk may cause, so that another attempt may
succeed."""

CHECK_S = 10.0
LATER: Any = object()
"""An iterator of blocks yields this if it has no block yet; it is asked again when a block has
finished."""


class Record(Protocol[V]):
    def __contains__(self, block: object) -> bool: ...

    def save(self, block: object, value: V) -> None: ...

    def load(self, block: object) -> V: ...


def map_blocks(
    function: Callable[[B], V],
    blocks: Iterable[B],
    *,
    record: Record[V] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    num_cpus: float = 1.0,
    num_gpus: float = 0,
    retries: int = 3,
    in_flight: int | None = None,
    lasting: bool = False,
) -> Iterator[tuple[B, V]]:
    """Call ``function(block)`` for every block in Ray tasks, and yield what they return.

    The tasks run on all instances.

    Ray must be connected (``ray.init()`` in a script of ``raysm run``). The function is shipped
    once; bind what all blocks share with ``functools.partial``. A block is any value; a
    ``PlacedBlock`` may say on which instance it runs, and what else the function gets.

    Args:
        function: Must be pure: a block that is tried again, also by a restarted job, must return
            the same value. A task that maps blocks itself may pass the Ray object reference of a
            function.
        blocks: Values that pickle; ``str(block)`` names each in messages and in the record. An
            iterator may yield ``LATER`` while any of its blocks is unfinished.
        record: Saves finished blocks; blocks that it already has are loaded and not computed.
        on_progress: Called with the number of finished blocks and of all (None if ``blocks`` has no
            length).
        num_cpus: CPUs of one task; NumPy uses as many threads if ``OMP_NUM_THREADS`` is not set.
        num_gpus: GPUs of one task.
        retries: Number of further attempts after a crash, a lost instance, too little memory, or an
            ``OSError`` of the function. Any other exception of the function is final.
        in_flight: Maximum number of unfinished blocks; None is two for each task that the cluster
            can run at once.
        lasting: Run the blocks in processes that live until the end, one for each task that the
            cluster can run at once, for example to keep a GPU's memory.

    Yields:
        (block, value), in the order in which they are finished.

    Raises:
        BlockFailed: The function raised, or a block failed ``1 + retries`` times; the others are
            cancelled.
        InvalidRequest: An option is out of range, no instance has the CPUs and GPUs of one task, or
            the function raised it about its input.
        InstanceLost: The instance that a block is bound to, or every one that could run it, went
            away and did not come back.
    """
    if retries < 0:
        raise InvalidRequest(f"map_blocks: retries must be at least 0, got {retries}")
    # One block runs and one waits for its CPU; the inputs of the waiting one travel meanwhile.
    limit = 2 * task_slots(num_cpus, num_gpus) if in_flight is None else in_flight
    if limit < 1:
        raise InvalidRequest(f"map_blocks: in_flight must be at least 1, got {limit}")
    total = len(blocks) if isinstance(blocks, Sized) else None
    shipped = function if isinstance(function, ray.ObjectRef) else ray.put(function)
    workers: Workers
    if lasting:
        workers = Processes(task_slots(num_cpus, num_gpus), num_cpus, num_gpus)
    else:
        workers = Tasks(num_cpus, num_gpus)
    run = _Run(
        workers,
        shipped,
        Presence(num_cpus, num_gpus),
        limit=limit,
        attempts=1 + retries,
        record=record,
    )
    done = 0
    for block, value in run.finish(iter(blocks)):
        done += 1
        yield block, value
        del value  # While the next value comes, only the caller holds this one.
        # After the ``yield``: a block counts as finished once the caller has dealt with it.
        if on_progress is not None:
            on_progress(done, total)


def map_here(
    function: Callable[[B], V], blocks: Iterable[B], record: Record[V] | None = None
) -> Iterator[tuple[B, V]]:
    """Like ``map_blocks``, in this process, one block after the other, without retries."""
    for block in blocks:
        if record is not None and block in record:
            yield block, record.load(block)
            continue
        value = function(block)
        if record is not None:
            record.save(block, value)
        yield block, value


class _Run:
    def __init__(
        self,
        workers: Workers,
        shipped: Any,
        presence: Presence,
        *,
        limit: int,
        attempts: int,
        record: Record[Any] | None,
    ) -> None:
        self._workers = workers
        self._shipped = shipped
        self._presence = presence
        self._limit = limit
        self._attempts = attempts
        self._record = record
        self._running: dict[Any, tuple[Any, int]] = {}
        self._is_exhausted = False
        self._check_at = time.monotonic() + CHECK_S

    def finish(self, waiting: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        try:
            while True:
                yield from self._fill(waiting)
                if not self._running:
                    assert self._is_exhausted, (
                        "the iterator gave LATER while no block was unfinished"
                    )
                    return
                finished = self._await_one()
                if finished is None:
                    continue
                block, value = finished
                del finished  # else the value would be held while the caller works on the next one
                if self._record is not None:
                    self._record.save(block, value)
                yield block, value
                del value
        finally:
            # Also if the caller takes no more values: closing its iterator ends the generator here.
            self._workers.close(list(self._running))

    def _fill(self, waiting: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        while len(self._running) < self._limit and not self._is_exhausted:
            # Not None for the end: a block may be any value.
            block = next(waiting, self)
            if block is LATER:
                return
            if block is self:
                self._is_exhausted = True
            elif self._record is not None and block in self._record:
                yield block, self._record.load(block)
            else:
                self._submit(block, 1)

    def _await_one(self) -> tuple[Any, Any] | None:
        """Return the next finished block and its value, or None.

        None means that no block finished, or that a block failed and is tried again.
        """
        # ``fetch_local=False`` leaves values where they were made: the head's object store holds
        # one at a time.
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=CHECK_S, fetch_local=False)
        # Check while other blocks finish too, to notice early that a block waits for a lost
        # instance.
        if not ready or time.monotonic() >= self._check_at:
            self._check_presence([block for block, _ in self._running.values()])
        if not ready:
            return None
        block, attempt = self._running.pop(ready[0])
        try:
            return block, ray.get(ready[0])
        except RayError as error:
            _raise_if_final(error, block, attempt, is_last=attempt >= self._attempts)
            # A lasting process has ended: Ray replaces the processes of tasks only.
            if isinstance(error, RayActorError):
                self._workers.replace(ready[0])
            self._submit(block, attempt + 1)
            return None
        finally:
            self._workers.finish(ready[0])

    def _submit(self, block: Any, attempt: int) -> None:
        # Wait here, because nothing else can be done until a process takes blocks.
        while not self._workers.wait(CHECK_S, block):
            self._check_presence([block])
        self._running[self._workers.submit(self._shipped, block)] = block, attempt

    def _check_presence(self, blocks: Sequence[Any]) -> None:
        now_s = time.monotonic()
        self._presence.check(blocks, _alive(), now_s)
        self._check_at = now_s + CHECK_S


def _raise_if_final(error: RayError, block: Any, attempt: int, *, is_last: bool) -> None:
    cause = error.cause if isinstance(error, RayTaskError) else None
    # A task that waited for another task wraps that one's error.
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    # BlockFailed and InstanceLost come from a task that itself mapped blocks, and retried them.
    if isinstance(
        cause,
        InvalidRequest | InvalidConfig | MissingDependency | BlockFailed | InstanceLost | NoRoom,
    ):
        raise cause from None
    # A task that Ray cannot schedule would fail at the next attempt too.
    if isinstance(error, TaskUnschedulableError) or is_last or _is_user_error(error, cause):
        failure = failure_of(error)
        assert failure is not None, "only an exit is no failure"
        raise BlockFailed(str(block), attempt, task_traceback(error), failure.headline) from None


def _is_user_error(error: RayError, cause: BaseException | None) -> bool:
    if not isinstance(error, RayTaskError):
        # Other errors are Ray's, unless they stand for an exception that cannot be unpickled here.
        return isinstance(error, UnserializableException)
    # An error of Ray's own: the task waited for a lost object. RayError itself stands for an
    # exception that cannot be pickled.
    is_rays = isinstance(cause, RayError) and type(cause) not in (RayError, UnserializableException)
    return not is_rays and not isinstance(cause, TRANSIENT)


def task_slots(num_cpus: float = 1.0, num_gpus: float = 0) -> int:
    nodes = [node["Resources"] for node in _alive()]
    at_once = tasks_at_once(nodes, num_cpus, num_gpus)
    if at_once == 0:
        cpus, gpus = (
            max((node.get(name, 0) for node in nodes), default=0) for name in ("CPU", "GPU")
        )
        raise InvalidRequest(
            f"no instance can run a task of num_cpus={num_cpus:g} and num_gpus={num_gpus:g}: "
            f"the largest offers {cpus:g} CPUs and {gpus:g} GPUs"
        )
    return at_once


def instances() -> int:
    return sum(node["Resources"].get("CPU", 0) > 0 for node in _alive())


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]

"""Share-nothing work: one function over many blocks, on all instances, each task told its block only.

What flows in is a function and blocks, what flows out are values in the order in which they are finished, one at a
time. At most ``in_flight`` blocks are unfinished at any moment, and a new one begins when the caller has taken a
value: memory depends on neither the number of blocks nor the speed of whoever consumes the values.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError, TaskUnschedulableError

from raysm.contract.names import LABEL_HOST
from raysm.errors import BlockFailed, InstanceLost, InvalidRequest
from raysm.workloads.files import FileBlock, file_blocks
from raysm.workloads.placed import PlacedBlock, host_of, hosts_of, inputs_of
from raysm.workloads.processes import Processes
from raysm.workloads.record import BlockRecord

__all__ = [
    "LATER",
    "FileBlock",
    "PlacedBlock",
    "RowBlock",
    "TileBlock",
    "file_blocks",
    "instances",
    "map_blocks",
    "row_blocks",
    "task_slots",
]

B = TypeVar("B")
V = TypeVar("V")

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Ray colours its tracebacks, whoever reads them."""

CHECK_S = 10.0
"""How often it is asked which instances are there."""

LOST_AFTER_S = 60.0
"""How long an instance that a block needs, or any that could run it, may be away before it is given up."""

CANCEL_ATTEMPTS = 5
CANCEL_S = 0.5
"""How often tasks are cancelled at most, and how long one cancelling is given."""

LATER: Any = object()
"""What the blocks' iterator gives where it has none now: it is asked again when a block has finished."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive rows."""

    start: int
    """First row."""
    stop: int
    """The row after the last."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def __str__(self) -> str:
        """Return the block's name in messages and records."""
        return f"rows {self.start} to {self.stop - 1}"


@dataclass(frozen=True, slots=True)
class TileBlock:
    """A rectangle of a matrix."""

    rows: RowBlock
    """Its rows."""
    columns: RowBlock
    """Its columns."""

    def __str__(self) -> str:
        """Return the block's name in messages and records."""
        return f"{self.rows}, columns {self.columns.start} to {self.columns.stop - 1}"


def row_blocks(rows: int, block_rows: int) -> list[RowBlock]:
    """Cut ``rows`` rows into blocks of ``block_rows``, the last one smaller.

    Raises:
        InvalidRequest: ``rows`` is negative, or ``block_rows`` below 1.
    """
    if rows < 0 or block_rows < 1:
        raise InvalidRequest(f"row_blocks: rows must be at least 0 and block_rows at least 1, got {rows}, {block_rows}")
    return [RowBlock(start, min(start + block_rows, rows)) for start in range(0, rows, block_rows)]


class _Record(Protocol):
    """What ``map_blocks`` needs of a ``BlockRecord``."""

    def __contains__(self, block: object) -> bool: ...
    def save(self, block: object, value: Any) -> None: ...
    def load(self, block: object) -> Any: ...


@dataclass(slots=True)
class _Running:
    block: Any
    attempt: int


def map_blocks(
    function: Callable[[B], V],
    blocks: Iterable[B],
    *,
    num_cpus: float = 1.0,
    num_gpus: float = 0,
    retries: int = 3,
    record: BlockRecord[V] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    in_flight: int | None = None,
    lasting: bool = False,
) -> Iterator[tuple[B, V]]:
    """Call ``function(block)`` for every block, as Ray tasks spread over all instances, and yield what they return.

    Ray must be connected (``ray.init()`` in a script of ``raysm run``). The function is shipped once and should be
    given what all blocks share by ``functools.partial``. A block is any value; a ``PlacedBlock`` may say on which
    instance it runs, and what the function is given after it.

    Args:
        function: Pure: a block that is tried again, or a job that is restarted, has to return the same. Or an object of
            Ray that it became, of which a task that itself maps blocks need not make one more.
        blocks: Values that pickle; ``str(block)`` names each in messages and in the record. An iterator may give
            ``LATER`` while any of its blocks is unfinished.
        num_cpus: CPUs of one task; NumPy uses as many threads where ``OMP_NUM_THREADS`` is not set.
        num_gpus: GPUs of one task.
        retries: How often a block is tried again after an error, a crash, a lost instance or too little memory.
        record: Where finished blocks are kept; those that it holds are not computed but read.
        on_progress: Called with the number of finished blocks and of all (None if ``blocks`` has no length).
        in_flight: Most unfinished blocks at a time; None is two for each task that the cluster can run at once.
        lasting: One process for each task that the cluster can run at once does all of its blocks, and keeps a GPU's
            memory meanwhile; a block's ``host`` is not asked then.

    Yields:
        (block, value), in the order in which they are finished.

    Raises:
        BlockFailed: A block failed ``1 + retries`` times; the others are cancelled.
        InvalidRequest: No instance has the CPUs and GPUs of one task; or the function said so of its input, which is
            not tried again.
        InstanceLost: The instance that a block is bound to, or every one that could run it, went away and did not
            come back.
    """
    if retries < 0:
        raise InvalidRequest(f"map_blocks: retries must be at least 0, got {retries}")
    limit = 2 * task_slots(num_cpus, num_gpus) if in_flight is None else in_flight
    if limit < 1:
        raise InvalidRequest(f"map_blocks: in_flight must be at least 1, got {limit}")
    total = len(blocks) if isinstance(blocks, Sized) else None
    shipped = function if isinstance(function, ray.ObjectRef) else ray.put(function)
    task: Any
    if lasting:
        task = Processes(task_slots(num_cpus, num_gpus), num_cpus, num_gpus)
    else:
        task = ray.remote(max_retries=0, num_cpus=num_cpus, num_gpus=num_gpus)(_call)
    presence = _Presence(num_cpus, num_gpus)
    done = 0
    kept = cast("_Record | None", record)
    for block, value in _finish(task, shipped, iter(blocks), limit, 1 + retries, kept, presence):
        done += 1
        yield block, value
        del value  # The caller's is the only reference while the next value comes.
        if on_progress is not None:
            on_progress(done, total)


def _finish(
    task: Any,
    shipped: Any,
    waiting: Iterator[Any],
    limit: int,
    attempts: int,
    record: _Record | None,
    presence: "_Presence",
) -> Iterator[tuple[Any, Any]]:
    running: dict[Any, _Running] = {}
    exhausted = False
    check_at = time.monotonic() + CHECK_S
    try:
        while True:
            while len(running) < limit and not exhausted:
                block = next(waiting, running)
                if block is LATER:
                    break
                if block is running:
                    exhausted = True
                elif record is not None and block in record:
                    yield block, record.load(block)
                else:
                    running[_submit(task, shipped, block, presence)] = _Running(block, 1)
            if not running:
                assert exhausted, "there are blocks, later, but none is running after which they could come"
                return
            # Values stay where they were made until their turn: the head's object store holds one of them.
            ready, _ = ray.wait(list(running), num_returns=1, timeout=CHECK_S, fetch_local=False)
            if not ready or time.monotonic() >= check_at:
                presence.check([entry.block for entry in running.values()], _alive(), time.monotonic())
                check_at = time.monotonic() + CHECK_S
            if not ready:
                continue
            reference = ready[0]
            entry = running.pop(reference)
            try:
                value = ray.get(reference)
            except RayError as error:
                _judge(error, entry, attempts)
                if isinstance(task, Processes) and isinstance(error, RayActorError):
                    task.ended(reference)
                running[_submit(task, shipped, entry.block, presence)] = _Running(entry.block, entry.attempt + 1)
                continue
            finally:
                del ready, reference
            if record is not None:
                record.save(entry.block, value)
            yield entry.block, value
            del value
    finally:
        if isinstance(task, Processes):
            task.close()
        else:
            _cancel(list(running))


def _cancel(unfinished: list[Any]) -> None:
    """End these tasks: their CPUs are free for what comes after them.

    A task that is just being handed to its process is in no queue any more and does not run yet: Ray finds nothing to
    cancel, and does not try again.
    """
    for _ in range(CANCEL_ATTEMPTS):
        if not unfinished:
            return
        for reference in unfinished:
            ray.cancel(reference, force=True)
        unfinished = ray.wait(unfinished, num_returns=len(unfinished), timeout=CANCEL_S, fetch_local=False)[1]


def _judge(error: RayError, entry: _Running, attempts: int) -> None:
    """Raise what ends the work; return if the block may be tried again."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    # The last two are of a task that itself mapped blocks: what it could not do was tried there.
    if isinstance(cause, InvalidRequest | BlockFailed | InstanceLost):
        raise cause from None
    if entry.attempt >= attempts or isinstance(error, TaskUnschedulableError):
        text = str(error) if isinstance(error, RayTaskError) else f"{type(error).__name__}: {error}"
        text = COLOUR.sub("", text)
        raise BlockFailed(str(entry.block), entry.attempt, text.strip()) from None


def _submit(task: Any, shipped: Any, block: Any, presence: "_Presence") -> Any:
    if isinstance(task, Processes):
        # While none of the lasting processes is there, nothing else can be done.
        while not task.wait(CHECK_S):
            presence.check([block], _alive(), time.monotonic())
        return task.submit(shipped, block)
    host = host_of(block)
    where = {"scheduling_strategy": "SPREAD"} if host is None else {"label_selector": {LABEL_HOST: host}}
    return task.options(name=str(block), **where).remote(shipped, block, *inputs_of(block))


def _call(function: Callable[..., Any], block: Any, *inputs: Any) -> Any:
    return function(block, *inputs)


def task_slots(num_cpus: float = 1.0, num_gpus: float = 0) -> int:
    """Return how many tasks of that size the cluster can run at once.

    Raises:
        InvalidRequest: None.
    """
    nodes = [node["Resources"] for node in _alive()]
    at_once = _at_once(nodes, num_cpus, num_gpus)
    if at_once == 0:
        most = max((node.get("CPU", 0) for node in nodes), default=0), max((n.get("GPU", 0) for n in nodes), default=0)
        raise InvalidRequest(
            f"no instance can run a task of num_cpus={num_cpus:g} and num_gpus={num_gpus:g}: the largest offers "
            f"{most[0]:g} CPUs and {most[1]:g} GPUs"
        )
    return at_once


def instances() -> int:
    """Return how many instances with CPUs the cluster has."""
    return sum(node["Resources"].get("CPU", 0) > 0 for node in _alive())


def _at_once(nodes: Iterable[Mapping[str, float]], num_cpus: float, num_gpus: float) -> int:
    """Return how many tasks of that size run at once on nodes of these resources."""
    at_once = 0
    for resources in nodes:
        fits = [resources.get(name, 0) / need for name, need in (("CPU", num_cpus), ("GPU", num_gpus)) if need > 0]
        at_once += math.floor(min(fits, default=1.0) + 1e-9)
    return at_once


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


class _Presence:
    """Since when an instance that a block is bound to, or every one that could run a task, has been away."""

    def __init__(self, num_cpus: float, num_gpus: float) -> None:
        self._task = num_cpus, num_gpus
        self._since: dict[str, float] = {}
        self._nowhere_since: float | None = None

    def check(self, blocks: Iterable[Any], nodes: Sequence[Mapping[str, Any]], now_s: float) -> None:
        if _at_once((node["Resources"] for node in nodes), *self._task):
            self._nowhere_since = None
        elif self._nowhere_since is None:
            self._nowhere_since = now_s
        elif now_s - self._nowhere_since > LOST_AFTER_S:
            raise InstanceLost(
                f"for {now_s - self._nowhere_since:.0f} s no instance has been there that can run a task of "
                f"num_cpus={self._task[0]:g} and num_gpus={self._task[1]:g}: all that could went away"
            )
        alive = {node["Labels"].get(LABEL_HOST, "") for node in nodes}
        bound = {host: block for block in blocks for host in hosts_of(block)}
        self._since = {host: self._since.get(host, now_s) for host in bound if host not in alive}
        for host, since in self._since.items():
            if now_s - since > LOST_AFTER_S:
                raise InstanceLost(f"{host} has been away for {now_s - since:.0f} s, and only it has {bound[host]}")

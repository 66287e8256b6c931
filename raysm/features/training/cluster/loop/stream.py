"""Streams: data sets without rows that can be asked for, which are read from their beginning.

A stream is either the same in every process, and raysm takes each data rank's rows of each batch;
or it is sharded: each process that reads (a data rank, or each of its loader workers) has a share
of its own, and raysm asks each for its part of the batch. How far each process is, is counted in
rows, and is the stream's own state where it has one: ``state_dict`` and ``load_state_dict``, as
torchdata's ``StatefulDataLoader`` uses them.
"""

import contextlib
import hashlib
import itertools
import numbers
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.position import StreamPosition, WorkerPosition
from raysm.features.training.cluster.loop.random_state import (
    cpu_state,
    from_bytes,
    plain,
    seed_cpu,
    seed_of,
    seeded,
    set_cpu_state,
    to_bytes,
)

Share: TypeAlias = tuple[int, int]
"""The number of a process among those that read, from 0, and how many they are."""


def bytes_of(position: StreamPosition) -> bytes:
    workers = [(each.rows, each.is_over, each.state) for each in position.workers]
    return to_bytes((workers, position.next_worker))


def position_of(kept: bytes) -> StreamPosition:
    workers, next_worker = from_bytes(kept)
    return StreamPosition(
        workers=tuple(
            WorkerPosition(rows=rows, is_over=is_over, state=state)
            for rows, is_over, state in workers
        ),
        next_worker=next_worker,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Where a process begins to read."""

    epoch: int
    share: Share | None
    """None for a stream that is not sharded."""
    position: WorkerPosition
    is_compared: bool = False
    """The first rows are compared with those of other data ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamRequest:
    rows: int
    part: Share
    """Which part of these rows the data rank takes."""
    start: Start | None


# A tuple, because the loader pins the memory of its tensors.
class StreamBatch(NamedTuple):
    batch: Any
    """None without rows. Without rows of the data rank's own, one row that does not count."""
    rows: int
    own_rows: int
    position: WorkerPosition
    digest: str | None
    """Of the first rows after a start, by which ranks compare their streams."""


def part_of(rows: int, part: Share) -> tuple[int, int]:
    """Return where a part of these rows begins and ends.

    Parts differ by one row at most. The first parts have more rows, so rank 0 has rows of its own
    in each batch of a stream that is not sharded: checkpoints keep its running averages of batch
    norms, and DDP gives them to all.
    """
    number, count = part
    each, more = divmod(rows, count)
    first = number * each + min(number, more)
    return first, first + each + (number < more)


def has_state(stream: object) -> bool:
    return all(callable(getattr(stream, name, None)) for name in ("state_dict", "load_state_dict"))


_share: Share | None = None
"""That of the stream that this process reads at this moment."""
_is_whole = False


def share() -> tuple[int, int]:
    """Return this process's number among those that read a sharded stream, and how many they are.

    Call it in ``__iter__`` of the stream, to take ``files[number::count]``: the processes are the
    loader workers of all data ranks, or the data ranks themselves.
    """
    if _is_whole:
        raise InvalidRequest(
            "training.share was called by a stream that raysm shares out itself: pass sharded=True "
            "to training.batches"
        )
    if _share is not None:
        return _share
    session = sessions.current()
    return session.data_rank, session.data_ranks


class StreamReader(Dataset[Any]):
    """A stream, in the process that reads it."""

    def __init__(self, stream: Any, seed: int, collate: Callable[[list[Any]], Any]) -> None:
        self._stream = stream
        self._seed = seed
        self._collate = collate
        self._rows: Iterator[Any] = iter(())
        self._start = Start(epoch=0, share=None, position=WorkerPosition())
        self._count = 0
        self._is_over = False
        self._random = cpu_state()

    def __getitem__(self, request: StreamRequest) -> StreamBatch:
        if request.start is not None:
            self._begin(request.start)
        first_row = self._count
        with self._reading():
            samples = list(itertools.islice(self._rows, request.rows))
        self._count += len(samples)
        self._is_over = self._is_over or len(samples) < request.rows
        position = self._position()
        if request.start is not None and position.state is not None:
            _check_plain(position.state)
        first, stop = part_of(len(samples), request.part)
        batch = None
        digest = None
        if samples:
            batch = self._collated(samples[first:stop] or samples[:1], first_row + first)
            if request.start is not None and request.start.is_compared:
                digest = _digest(self._collated(samples, first_row))
        return StreamBatch(
            batch=batch,
            rows=len(samples),
            own_rows=stop - first,
            position=position,
            digest=digest,
        )

    def _begin(self, start: Start) -> None:
        position = start.position
        self._start = start
        self._rows = iter(())
        self._count = position.rows
        self._is_over = position.is_over
        if position.is_over:
            return
        if hasattr(self._stream, "set_epoch"):
            self._stream.set_epoch(start.epoch)
        before = cpu_state()
        # Alike in all processes: files that are shuffled before they are shared out must be in the
        # same order in each.
        seed_cpu(seed_of(self._seed, start.epoch))
        self._random = cpu_state()
        set_cpu_state(before)
        with self._reading():
            self._rows = iter(self._stream)
            loads: Any = self._rows if has_state(self._rows) else self._stream
            if position.state is None or not has_state(loads):
                for _ in itertools.islice(self._rows, position.rows):
                    pass
                return
            state, random = from_bytes(position.state)
            loads.load_state_dict(state)
            if loads is self._stream:
                self._rows = iter(self._stream)
        self._random = random

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Give the stream its own random numbers, and the share that it may ask for."""
        global _is_whole, _share
        before = cpu_state(), _share, _is_whole
        set_cpu_state(self._random)
        _share = self._start.share
        _is_whole = _share is None
        try:
            yield
        finally:
            self._random = cpu_state()
            random, _share, _is_whole = before
            set_cpu_state(random)

    def _collated(self, samples: list[Any], row: int) -> Any:
        # Seeded apart from the stream: data ranks may draw differently often for their parts.
        share = self._start.share
        # Each share counts its rows from 0, and yet draws numbers of its own.
        place = (row,) if share is None else (share[0], row)
        with seeded(iter([seed_of(self._seed, self._start.epoch, *place)])) as next_batch:
            next(next_batch)
            return self._collate(samples)

    def _position(self) -> WorkerPosition:
        state = None
        keeps: Any = self._rows if has_state(self._rows) else self._stream
        # A stream that has ended may have gone back to its beginning.
        if has_state(keeps) and not self._is_over:
            state = to_bytes((keeps.state_dict(), plain(self._random)))
        return WorkerPosition(rows=self._count, is_over=self._is_over, state=state)


def _check_plain(state: bytes) -> None:
    """Refuse a state that no checkpoint could be resumed from, before the first step."""
    try:
        from_bytes(state)
    except pickle.UnpicklingError as error:
        raise InvalidRequest(
            "a checkpoint cannot keep the stream's state_dict(), which holds objects whose reading "
            "may run code: return plain values and tensors"
        ) from error


def _digest(batch: Any) -> str | None:
    """Return a digest of the dense tensors, numbers and strings; None if there are none."""
    known = [
        leaf.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        if isinstance(leaf, torch.Tensor)
        else repr(leaf).encode()
        for leaf in pytree.tree_leaves(batch)
        if _is_dense(leaf) or isinstance(leaf, (numbers.Number, str, bytes))
    ]
    return hashlib.sha256(b"".join(known)).hexdigest() if known else None


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided

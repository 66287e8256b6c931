"""Batches in an order that follows from the seed and the epoch alone, however many workers share them.

Batch ``k`` of an epoch is the same rows on one worker and on a thousand: each data rank takes its slice. So a training
that goes on in the middle of an epoch, also on another number of workers, meets exactly the rows that it has not met.
What a sample's own code draws at random (augmentation) follows from seed, epoch and row, so it does not depend on
workers, loaders and interruptions either.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from raysm.errors import InvalidRequest
from raysm.workloads.training import session as sessions
from raysm.workloads.training.manifest import DataOrder
from raysm.workloads.training.random_state import seed_of, seeded
from raysm.workloads.training.session import Session
from raysm.workloads.training.whole import on_device

__all__ = ["Slice", "batches", "epoch_order", "epochs", "slices"]


@dataclass(frozen=True, slots=True)
class Slice:
    """One data rank's part of one batch."""

    epoch: int
    """From 0."""
    end: int
    """Samples of the epoch that all data ranks have had after this batch."""
    rows: tuple[int, ...]
    """Of the data set; never empty."""
    share: float
    """Rows that count / rows of the whole batch: 0 where the batch has fewer rows than there are data ranks."""


def epoch_order(samples: int, *, epoch: int, shuffle: bool, seed: int) -> torch.Tensor:
    """Return the rows of the data set in the order of that epoch, int64[samples]."""
    if not shuffle:
        return torch.arange(samples)
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed_of(seed, epoch)))


def slices(
    order: torch.Tensor, *, epoch: int, offset: int, batch_size: int, data_rank: int, data_ranks: int, drop_last: bool
) -> Iterator[Slice]:
    """Yield this data rank's slices of the batches from sample ``offset`` of the epoch on.

    The slices of one batch differ by one row at most, so that any batch size goes with any number of workers.
    """
    for begin in range(offset, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        count = len(rows)
        if drop_last and count < batch_size:
            return
        own = rows[data_rank * count // data_ranks : (data_rank + 1) * count // data_ranks]
        # Every rank has to take part in every step: one without a row of its own computes one that counts nothing.
        kept = own if len(own) else rows[:1]
        yield Slice(epoch=epoch, end=begin + count, rows=tuple(kept.tolist()), share=len(own) / count)


def epochs(count: int) -> Iterator[int]:
    """Yield the numbers of the epochs that are still to be done of ``count``, beginning with the one interrupted.

    For loops that do something at the end of each epoch::

        for epoch in training.epochs(10):
            for batch in training.batches(dataset, batch_size=256):
                training.step(batch)
            evaluate(model)
    """
    session = sessions.current()
    while session.epoch < count:
        epoch = session.epoch
        yield epoch
        if session.epoch == epoch:  # the user's batches are not those of ``batches``
            session.epoch, session.offset = epoch + 1, 0


def batches(
    dataset: Dataset[Any] | Sequence[Any],
    *,
    batch_size: int,
    epochs: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    loader_workers: int = 0,
    drop_last: bool = False,
    collate: Callable[[list[Any]], Any] = default_collate,
) -> Iterator[Any]:
    """Yield this worker's slice of each batch, on its device; goes on where the checkpoint was made.

    Args:
        dataset: Has ``len()`` and ``[row]``, and is the same on every instance.
        batch_size: Rows of one step over all workers: what the learning rate has to suit, and what stays the same
            when the number of workers changes.
        epochs: Passes over the data in the whole training, those before an interruption included; None is one pass,
            inside a loop over ``training.epochs``.
        shuffle: Give each epoch an order of its own.
        seed: Of the orders, and of what samples draw at random.
        loader_workers: Processes that read ahead, for each worker; 0 reads in the worker itself.
        drop_last: Leave out the last batch of an epoch where it is smaller than the others.
        collate: Makes a batch of samples.

    Raises:
        InvalidRequest: A number is out of range, the data set has no length, or the checkpoint that training goes on
            from was made in the middle of an epoch of other data or another order.
    """
    session = sessions.current()
    if session.prepared is not None:
        session.prepared.parallel.check_batch(batch_size, session.world_size)
    order = _checked(dataset, batch_size, shuffle, seed, loader_workers, drop_last)
    _check_same(session, order)
    session.order = order
    session.slice_rows = -(-batch_size // session.data_ranks)
    return _all_batches(session, _Reader(dataset, seed, collate), order, epochs, loader_workers, drop_last)


def _all_batches(
    session: Session, reader: "_Reader", order: DataOrder, count: int | None, loader_workers: int, drop_last: bool
) -> Iterator[Any]:
    for observer in session.observers:
        observer.on_loop_begin()
    for epoch in epochs(session.epoch + 1 if count is None else count):
        todo = slices(
            epoch_order(order.samples, epoch=epoch, shuffle=order.shuffle, seed=order.seed),
            epoch=epoch,
            offset=session.offset,
            batch_size=order.batch_size,
            data_rank=session.data_rank,
            data_ranks=session.data_ranks,
            drop_last=drop_last,
        )
        yield from _one_epoch(session, reader, list(todo), loader_workers)
        session.epoch, session.offset, session.share = epoch + 1, 0, None


def _one_epoch(session: Session, reader: "_Reader", todo: list[Slice], loader_workers: int) -> Iterator[Any]:
    pinned = session.device.type == "cuda"
    # Batch by batch through the sampler, not the data set's own length: a loader ends where its sampler does.
    loader = DataLoader(
        reader,
        batch_size=None,
        sampler=todo,
        num_workers=loader_workers,
        collate_fn=_as_it_is,
        pin_memory=pinned,
        # A generator of its own: beginning an epoch again must not draw from the one that training draws from.
        generator=torch.Generator(),
    )
    read = iter(loader)
    for part in todo:
        with session.span("data"):
            batch = on_device(next(read), session.device)
        # Before it is handed out: a checkpoint is made at the end of its step, and holds what was learned from it.
        session.offset, session.share = part.end, part.share
        yield batch


class _Reader(Dataset[Any]):
    """Samples to batches; also in the loader's processes."""

    def __init__(self, dataset: Any, seed: int, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset, self._seed, self._collate = dataset, seed, collate
        # Plain tensors draw nothing, and are cut in one go: row by row takes a hundred times as long.
        self._is_plain = type(dataset) is TensorDataset and collate is default_collate

    def __getitem__(self, part: Slice) -> Any:
        if self._is_plain:
            rows = torch.tensor(part.rows)
            return [tensor[rows] for tensor in self._dataset.tensors]
        seeds = (seed_of(self._seed, part.epoch, row) for row in part.rows)
        with seeded(seeds) as next_sample:
            if hasattr(self._dataset, "__getitems__"):
                next(next_sample)
                return self._collate(self._dataset.__getitems__(list(part.rows)))
            return self._collate([self._dataset[row] for row, _ in zip(part.rows, next_sample, strict=True)])


def _as_it_is(batch: Any) -> Any:
    return batch


def _checked(
    dataset: Any, batch_size: int, shuffle: bool, seed: int, loader_workers: int, drop_last: bool
) -> DataOrder:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InvalidRequest(
            f"batches: the data set, a {type(dataset).__name__}, has no len() or no [row]; only such a one can be cut"
            " into slices and gone on with: read a stream by a loader of your own"
        )
    samples = len(dataset)
    if batch_size < 1:
        raise InvalidRequest(f"batches: batch_size={batch_size} must be at least 1")
    if loader_workers < 0:
        raise InvalidRequest(f"batches: loader_workers={loader_workers} must be at least 0")
    if samples == 0 or (drop_last and samples < batch_size):
        raise InvalidRequest(
            f"batches: {samples} samples make no batch of {batch_size}: check the channel, or lower batch_size"
        )
    return DataOrder(samples=samples, batch_size=batch_size, shuffle=shuffle, seed=seed)


def _check_same(session: Session, order: DataOrder) -> None:
    """Refuse to go on in the middle of an epoch whose rows would not be those that are still to come."""
    before = session.order
    if before is None or session.offset == 0:
        return
    for name in ("samples", "shuffle", "seed"):
        was, now = getattr(before, name), getattr(order, name)
        if was != now:
            raise InvalidRequest(
                f"batches: the checkpoint of step {session.steps} was made in the middle of an epoch with {name}={was},"
                f" now it is {now}: go on with the same, or begin anew with another folder for the checkpoints"
            )

"""Batches in an order that follows from the seed and the epoch alone.

The order does not depend on the number of workers that share the batches. Batch ``k`` of an epoch
has the same rows on one worker and on a thousand: each data rank takes its slice. So a training
that resumes in the middle of an epoch, even on another number of workers, reads exactly the rows
that it has not read. What a sample's own code draws at random (augmentation) follows from seed,
epoch and row, so it does not depend on workers, loaders and interruptions either.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset, IterableDataset, default_collate

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.batch import Reader, on_device
from raysm.features.training.cluster.loop.loader import Loader
from raysm.features.training.cluster.loop.permutation import MAX_PERMUTED, Rows, epoch_rows
from raysm.features.training.cluster.loop.position import (
    UNSHARDED,
    BatchSlice,
    DataOrder,
    Position,
)
from raysm.features.training.cluster.loop.session import Session
from raysm.features.training.cluster.loop.stream import StreamReader, part_of
from raysm.features.training.cluster.loop.stream_loop import StreamLoop

END = object()


def slices(
    order: DataOrder,
    epoch_rows: Rows,
    *,
    epoch: int,
    offset: int,
    data_rank: int,
    data_ranks: int,
    drop_last: bool,
) -> Iterator[BatchSlice]:
    """Yield this data rank's slices of the batches from sample ``offset`` of the epoch on.

    The slices of one batch differ by one row at most, so that any batch size goes with any number
    of workers.
    """
    assert order.samples is not None
    for begin in range(offset, order.samples, order.batch_size):
        rows = epoch_rows(begin, min(begin + order.batch_size, order.samples))
        count = len(rows)
        if drop_last and count < order.batch_size:
            return
        first, stop = part_of(count, (data_rank, data_ranks))
        share = rows[first:stop]
        # Every rank must take part in every step: one without a row of its own computes one that
        # does not count.
        computed = share if len(share) else rows[:1]
        yield BatchSlice(
            order=order,
            epoch=epoch,
            begin=begin,
            end=begin + count,
            rows=tuple(computed.tolist()),
            share=len(share) / count,
            slice_rows=-(-order.batch_size // data_ranks),
        )


def epochs(count: int) -> Iterator[int]:
    """Yield the numbers of the epochs that are left of ``count``, an interrupted one first.

    For loops that do something at the end of each epoch::

        for epoch in training.epochs(10):
            for batch in training.batches(dataset, batch_size=256):
                training.step(batch)
            for inputs, target in training.batches(validation, batch_size=256, shuffle=False):
                evaluate(model(inputs), target)

    A loop over ``batches`` whose batches do not go to ``step`` does not change the position of the
    training. An epoch has one loop that is stepped. If the training resumes in the middle of the
    epoch, that loop gets the rows that are left, perhaps none. A loop before it that is not stepped
    also gets only these, if it has the same number of samples, ``shuffle`` and ``seed``. All other
    loops get all of their rows.
    """
    session = sessions.current()
    # Read when the loop begins, not when epochs() is called: a generator runs late.
    around = session.position.counts_epochs
    session.position.counts_epochs = True
    try:
        while session.position.epoch < count:
            epoch = session.position.epoch
            yield epoch
            session.position.leave(epoch)
    finally:
        if session.position.is_trained:  # the user has left the loop at the end of an epoch
            session.position.leave(session.position.epoch)
        session.position.counts_epochs = around


def batches(
    dataset: Dataset[Any] | Sequence[Any],
    *,
    batch_size: int,
    epochs: int | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    sharded: bool = False,
    loader_workers: int = 0,
    persistent_workers: bool = False,
    drop_last: bool = False,
    collate: Callable[[list[Any]], Any] = default_collate,
) -> Iterator[Any]:
    """Yield this worker's slice of each batch, on its device.

    A training that resumes begins at the position of its checkpoint.

    Args:
        dataset: Has ``len()`` and ``[row]``, and is the same on every instance; or is a stream, an
            ``IterableDataset``, whose rows come in its own order.
        batch_size: Rows of one step over all workers. It stays the same if the number of workers
            changes, and the learning rate must suit it.
        epochs: Passes over the data in the whole training, including those before an interruption;
            None is one pass, inside of ``training.epochs`` and for data that are not trained on.
        shuffle: Give each epoch an order of its own; None does so unless the data set is a stream.
        seed: Seed of the orders, and of the random numbers that samples draw.
        sharded: Each process that reads has a share of the stream of its own, by
            ``training.share()``. Otherwise each worker reads the whole stream, and keeps its slice
            of each batch.
        loader_workers: Processes of each worker that read ahead; 0 reads in the worker itself.
        persistent_workers: Keep these processes from one pass over a data set to the next, in a
            later call too. They have the data set as it was in the first.
        drop_last: Leave out the last batch of an epoch if it is smaller than the others; of a
            sharded stream, each batch that is smaller.
        collate: Makes a batch of samples.

    Raises:
        InvalidRequest: A number is out of range, the data set is neither of the two, or two loops
            count the epochs. ``step`` raises it if the checkpoint was made in the middle of an
            epoch of other data or another order.
        InvalidInput: An epoch of a stream has no batch.
    """
    session = sessions.current()
    if session.trainer is not None:
        session.trainer.parallel.check_batch(batch_size, session.world_size)
    if epochs is not None and session.position.counts_epochs:
        raise InvalidRequest(
            f"batches: epochs={epochs} inside training.epochs, which counts them; leave it out for "
            "one pass"
        )
    # Before the generator begins, so that an error points to the user's line.
    is_stream = isinstance(dataset, IterableDataset)
    if is_stream:
        order = _check_stream(session, batch_size, shuffle, seed, sharded, loader_workers)
    elif sharded:
        raise InvalidRequest(
            f"batches: sharded=True is for streams, and the data set is a {type(dataset).__name__} "
            "with len() and [row]: leave it out"
        )
    else:
        shuffle = shuffle is not False
        order = _check_order(dataset, batch_size, shuffle, seed, loader_workers, drop_last)
    if persistent_workers and loader_workers == 0:
        raise InvalidRequest(
            "batches: persistent_workers=True needs processes to keep: give loader_workers, too"
        )
    loader = _loader(session, dataset, order, collate, loader_workers, persistent_workers)
    loop: _Loop | StreamLoop
    if is_stream:
        readers = max(1, loader_workers)
        loop = StreamLoop(session, loader, order, drop_last, readers, sharded)
    else:
        loop = _Loop(session, loader, order, drop_last)
    return _all_batches(loop, session.position, epochs)


def one_pass(
    session: Session,
    dataset: Dataset[Any] | Sequence[Any],
    *,
    batch_size: int,
    loader_workers: int,
    collate: Callable[[list[Any]], Any],
) -> Iterator[Any]:
    order = _check_order(dataset, batch_size, False, 0, loader_workers, False)
    loader = _loader(session, dataset, order, collate, loader_workers, persistent_workers=False)
    loop = _Loop(session, loader, order, False)
    # position.begin is not used: a training does not continue in this pass, even if it has the same
    # data set.
    return session.position.hand_out(loop.one_pass(0, 0))


def _loader(
    session: Session,
    dataset: Any,
    order: DataOrder,
    collate: Callable[[list[Any]], Any],
    workers: int,
    persistent_workers: bool,
) -> Loader:
    """Return a loader of the data set, which is that of an earlier call if its workers persist."""
    key = (order, workers)
    identity = (dataset, collate)
    kept = session.loaders.get(key)
    if (
        persistent_workers
        and kept is not None
        and not kept.is_reading
        and all(map(operator.is_, kept.identity, identity))
    ):
        return kept
    reader = StreamReader if order.samples is None else Reader
    loader = Loader(
        reader(dataset, order.seed, collate),
        identity=identity,
        workers=workers,
        pin_memory=session.device.type == "cuda",
        persistent_workers=persistent_workers,
    )
    if persistent_workers:
        # By the order, so that the workers of a data set that is made anew in each epoch end.
        session.loaders[key] = loader
    return loader


@dataclass(frozen=True, slots=True)
class _Loop:
    session: Session
    loader: Loader
    order: DataOrder
    drop_last: bool

    def one_pass(self, epoch: int, offset: int) -> Iterator[tuple[BatchSlice, Any]]:
        session = self.session
        # The sampler gives whole batches, and runs ahead of them if the loader has workers. The
        # loader ends when its sampler does, not at the data set's length.
        sampled: deque[BatchSlice] = deque()

        def sample() -> Iterator[tuple[int, tuple[int, ...]]]:
            rows = epoch_rows(self.order, epoch)
            rank = {"data_rank": session.data_rank, "data_ranks": session.data_ranks}
            for item in slices(
                self.order, rows, epoch=epoch, offset=offset, drop_last=self.drop_last, **rank
            ):
                sampled.append(item)
                yield epoch, item.rows

        read = self.loader.read(sample())
        while True:
            with session.span("data"):
                batch = next(read, END)
                if batch is END:
                    break
                batch = on_device(batch, session.device)
            yield sampled.popleft(), batch


def _all_batches(loop: _Loop | StreamLoop, position: Position, count: int | None) -> Iterator[Any]:
    is_single = count is None
    if position.may_train(loop.order):
        for observer in loop.session.observers:
            observer.on_loop_begin()
    first, offset = position.begin(loop.order, is_single=is_single)
    if offset and position.order is not None and position.order.shares != loop.order.shares:
        loop.session.say(
            f"the stream was read in {position.order.shares} shares (data ranks × processes that "
            f"read) until the checkpoint, now in {loop.order.shares}: epoch {first} begins again, "
            f"and the {offset} rows that it has learned from come once more"
        )
        offset = 0
    for epoch in range(first, first + 1 if count is None else count):
        has_batches = yield from position.hand_out(loop.one_pass(epoch, offset))
        position.end_pass(loop.order, epoch, is_single=is_single, is_empty=not has_batches)
        offset = 0
    # The end of a training, perhaps: a loss that is not finite would go unreported.
    loop.session.look_at_losses()


def _check_order(
    dataset: Any, batch_size: int, shuffle: bool, seed: int, loader_workers: int, drop_last: bool
) -> DataOrder:
    is_stream = isinstance(dataset, IterableDataset)
    if is_stream or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InvalidRequest(
            f"batches: the data set, a {type(dataset).__name__}, has no len() or no [row]; a "
            "stream must be a torch.utils.data.IterableDataset, and training.evaluate takes none"
        )
    samples = len(dataset)
    _check_numbers(batch_size, loader_workers)
    if samples == 0 or (drop_last and samples < batch_size):
        raise InvalidRequest(
            f"batches: {samples} samples make no batch of {batch_size}: check the channel, or "
            "lower batch_size"
        )
    keyed = shuffle and samples > MAX_PERMUTED
    return DataOrder(
        samples=samples, batch_size=batch_size, shuffle=shuffle, seed=seed, keyed=keyed
    )


def _check_stream(
    session: Session,
    batch_size: int,
    shuffle: bool | None,
    seed: int,
    sharded: bool,
    loader_workers: int,
) -> DataOrder:
    if shuffle:
        raise InvalidRequest(
            "batches: shuffle=True, but a stream has its own order: leave it out, and shuffle in "
            "the stream, whose set_epoch() gets the number of the epoch"
        )
    _check_numbers(batch_size, loader_workers)
    if sharded and batch_size < session.data_ranks:
        raise InvalidRequest(
            f"batches: batch_size={batch_size} must be at least {session.data_ranks}, since each "
            "data rank reads rows of its own for each batch"
        )
    if not sharded and loader_workers > 1:
        raise InvalidRequest(
            f"batches: loader_workers={loader_workers}, but each process would read the whole "
            "stream: give 1, or share it out by training.share() and pass sharded=True"
        )
    shares = f"{session.data_ranks} × {max(1, loader_workers)}" if sharded else UNSHARDED
    return DataOrder(samples=None, batch_size=batch_size, shuffle=False, seed=seed, shares=shares)


def _check_numbers(batch_size: int, loader_workers: int) -> None:
    if batch_size < 1:
        raise InvalidRequest(f"batches: batch_size={batch_size} must be at least 1")
    if loader_workers < 0:
        raise InvalidRequest(f"batches: loader_workers={loader_workers} must be at least 0")

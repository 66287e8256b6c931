"""The position of a training in its data, which only steps move.

Loops over ``batches`` yield batches, and steps learn from them. A loop whose batches go to no step
(a validation) does not change the position. Each loop has a ``DataOrder`` object of its own: the
same object means the same loop, and equal fields mean the same order of rows.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest

FIELDS = ("samples", "shuffle", "seed", "keyed")
"""Fields that must be equal for an epoch to have the same rows in the same order; the batch size
may differ."""


UNSHARDED = "1"
"""The shares of a stream that is the same on all ranks, of whose batches each keeps its slice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerPosition:
    """How far a process has read its stream in an epoch."""

    rows: int = 0
    is_over: bool = False
    state: bytes | None = None
    """The stream's own state and that of the random numbers, if the stream has one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamPosition:
    """How far the processes of one data rank have read: what its steps have learned from."""

    workers: tuple[WorkerPosition, ...]
    next_worker: int = 0
    """The one that reads the next batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOrder:
    """The values that determine the order of the samples, together with the epoch."""

    samples: int | None
    """None for a stream."""
    batch_size: int
    shuffle: bool
    seed: int
    keyed: bool = False
    """The order is a keyed permutation, see ``permutation``."""
    shares: str = ""
    """The shares of a stream: ``UNSHARDED``, or data ranks × processes of each (``4 × 2``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSlice:
    order: DataOrder
    epoch: int
    begin: int
    """Samples of the epoch that come before the batch."""
    end: int
    """Samples of the epoch that all data ranks have had after it."""
    rows: tuple[int, ...]
    """Rows of the data set, at least one: a rank without a row of its own computes one that does
    not count."""
    # The shares of all ranks add up to 1, so the mean over the batch does not depend on the number
    # of workers.
    share: float
    slice_rows: int
    stream: StreamPosition | None = None
    """How far this rank's stream is after the batch; ``rows`` of a stream are unknown."""
    digest: str | None = None
    """Of the first rows of a stream."""


@dataclass(kw_only=True, slots=True)
class Position:
    """How far a training is. Checkpoints keep ``steps``, ``epoch``, ``offset`` and ``order``."""

    steps: int = 0
    epoch: int = 0
    offset: int = 0
    """Samples of this epoch that all workers together have learned from."""
    stream: StreamPosition | None = None
    """How far this rank's stream is, if steps learn from one."""
    order: DataOrder | None = None
    """The order of the data that steps learned from; None before the first, or if the batches are
    the user's own."""
    current: BatchSlice | None = None
    """The batch that was handed out last, from which the next step learns; None if it is the
    user's own."""
    counts_epochs: bool = False
    is_trained: bool = False
    """The loop that trains in this epoch is at its end; only known if ``counts_epochs``."""
    passes: int = 0
    """Passes that were read to their end and not stepped, before the first step and outside of
    ``epochs``."""
    batch_before: int | None = None
    """Global batch of the checkpoint that training continues from; None without one."""

    def begin(self, order: DataOrder, *, is_single: bool) -> tuple[int, int]:
        """Return the epoch, and the sample of it, at which a loop begins.

        A loop that ``is_single`` makes one pass.
        """
        if not self.may_train(order):
            return self.epoch, 0
        # Steps on the user's own batches do not say what they learned from, so only passes are
        # counted.
        if self.order is None and is_single and not self.counts_epochs:
            return self.epoch + self.passes, self.offset
        if self.offset and not self.is_trained:
            return self.epoch, self.offset
        return self.epoch, 0

    def may_train(self, order: DataOrder) -> bool:
        """Return whether a loop of that order may be the one that trains.

        A loop may train if no other loop has handed out a batch.
        """
        return self.current is None and (
            self.order is None or _find_change(self.order, order) is None
        )

    def hand_out(self, batches: Iterable[tuple[BatchSlice, Any]]) -> Generator[Any, None, bool]:
        """Yield the batches of one pass, and return whether there were any.

        A step learns from ``current``, the batch that was yielded last.
        """
        # Loops may be nested: a validation inside of a training must give the step its batch back.
        around = self.current
        part: BatchSlice | None = None
        try:
            for part, batch in batches:
                self.current = part
                yield batch
        finally:
            # Also if the caller breaks out. A loop that is closed late must not reset the batch of
            # another loop.
            if self.current is part:
                self.current = around
        return part is not None

    def learn(self) -> None:
        """Begin a step: at its end, a checkpoint holds what was learned from this batch."""
        part = self.current
        if part is None:
            return
        if self.order is not part.order:
            self._check_belongs(part)
            self.order = part.order
        self.epoch = part.epoch
        self.offset = part.end
        self.stream = part.stream

    def end_pass(self, order: DataOrder, epoch: int, *, is_single: bool, is_empty: bool) -> None:
        # A pass is empty if the training was interrupted after the last step of the epoch.
        trains = self.order is order or is_empty
        if trains and self.counts_epochs:
            self.is_trained = True
        elif trains:
            self.epoch = epoch + 1
            self.offset = 0
        elif self.order is None and is_single and not self.counts_epochs:
            # Perhaps the user's own steps train: they should see another order in each pass.
            self.passes += 1

    def leave(self, epoch: int) -> None:
        self.epoch = epoch + 1
        self.offset = 0
        self.is_trained = False

    def _check_belongs(self, part: BatchSlice) -> None:
        """Refuse a batch that would leave out rows of this epoch, or repeat some."""
        if self.order is None:
            return
        # A checkpoint keeps one order and one offset.
        if self.is_trained:
            samples = self.order.samples
            data, together = (
                ("a stream", "streams into one (torch.utils.data.ChainDataset)")
                if samples is None
                else (f"{samples} samples", "data sets into one (torch.utils.data.ConcatDataset)")
            )
            raise InvalidRequest(
                f"training.step: epoch {self.epoch} was trained on already, by a loop over {data}: "
                "a checkpoint could not say in which of two loops it was made; put both "
                f"{together}, or train on them in epochs of their own"
            )
        if self.offset == 0:
            return
        changed = _find_change(self.order, part.order)
        if changed is not None:
            was = getattr(self.order, changed)
            now = getattr(part.order, changed)
            raise InvalidRequest(
                f"batches: the checkpoint of step {self.steps} was made in the middle of an epoch "
                f"with {changed}={was}, now it is {now}: continue with the same, or start again "
                "with another folder for the checkpoints"
            )
        # A stream in other shares begins its epoch again.
        restarts = part.begin == 0 and self.order.shares != part.order.shares
        if part.begin != self.offset and not restarts:
            raise InvalidRequest(
                f"training.step: the batch begins with sample {part.begin} of epoch {part.epoch}, "
                f"but the training is at sample {self.offset} of epoch {self.epoch}: another loop "
                "over training.batches was not at its end; leave it before the next one begins"
            )


def _find_change(before: DataOrder, now: DataOrder) -> str | None:
    return next((name for name in FIELDS if getattr(before, name) != getattr(now, name)), None)

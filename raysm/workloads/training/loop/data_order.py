"""What the order of the samples follows from, and one data rank's slice of a batch in that order: plain values."""

from dataclasses import dataclass

__all__ = ["DataOrder", "BatchSlice"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOrder:
    """What the order of the samples follows from, beside the epoch."""

    samples: int
    """In the data set."""
    batch_size: int
    """Of one step, over all workers."""
    shuffle: bool
    """Whether each epoch has an order of its own."""
    seed: int
    """Of these orders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSlice:
    """One data rank's slice of a batch, as ``batches`` hands it out: what a step with it learns from."""

    order: DataOrder
    """Of the loop that it is from; each has an object of its own."""
    epoch: int
    """From 0."""
    begin: int
    """Samples of the epoch that come before the batch."""
    end: int
    """Samples of the epoch that all data ranks have had after it."""
    rows: int
    """Of the slice; at least 1, as a rank without a row of its own computes one that counts nothing."""
    # Of all ranks together 1: the mean over the batch is then the same on any number of workers.
    share: float
    """Rows of the slice that count / rows of the whole batch."""
    slice_rows: int
    """Rows of a full slice of that loop, at most."""
    # Known before the first step, so that what a later batch would break is refused at once.
    fewest_rows: int
    """Of any slice of that loop."""

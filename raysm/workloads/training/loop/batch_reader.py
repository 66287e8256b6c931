"""Rows of a data set to a batch: what a sample draws at random follows from seed, epoch and row alone."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from raysm.workloads.training.loop.random_state import has_drawn, seed_of, seeded

__all__ = ["Reader"]


class Reader(Dataset[Any]):
    """Samples to batches; also in the loader's processes."""

    def __init__(self, dataset: Any, seed: int, collate: Callable[[list[Any]], Any]) -> None:
        """Take the data set, the seed of what its samples draw, and what makes a batch of samples."""
        self._dataset, self._seed, self._collate = dataset, seed, collate
        self._reads_slices = hasattr(dataset, "__getitems__")
        # Plain tensors draw nothing, and are cut in one go: row by row takes a hundred times as long.
        self._plain = _plain(dataset) if collate is default_collate else None

    def __getitem__(self, rows_of_epoch: tuple[int, Sequence[int]]) -> Any:
        """Return the batch of these rows, as they are in that epoch."""
        epoch, rows = rows_of_epoch
        if self._plain is not None:
            tensors, places = self._plain
            index = torch.tensor(rows)
            for place in places:
                index = place[index]
            return [tensor[index] for tensor in tensors]
        seeds = [seed_of(self._seed, epoch, row) for row in rows]
        if self._reads_slices:
            with seeded(iter(seeds)) as next_sample:
                next(next_sample)
                with has_drawn() as drawn:
                    samples = self._dataset.__getitems__(list(rows))
                if not drawn():
                    return self._collate(samples)
            # All rows drew by the seed of the first: what a row gets would depend on how many workers share the batch.
            self._reads_slices = False
        with seeded(iter(seeds)) as next_sample:
            return self._collate([self._sample(row) for row, _ in zip(rows, next_sample, strict=True)])

    def _sample(self, row: int) -> Any:
        if hasattr(self._dataset, "__getitems__"):
            (sample,) = self._dataset.__getitems__([row])
            return sample
        return self._dataset[row]


def _plain(dataset: Any) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]] | None:
    """Return the tensors of a ``TensorDataset``, and where its rows are in each ``Subset`` around it, outermost first.

    None for any other data set.
    """
    places = []
    while type(dataset) is Subset:
        places.append(torch.as_tensor(dataset.indices, dtype=torch.int64))
        dataset = dataset.dataset
    return (dataset.tensors, places) if type(dataset) is TensorDataset else None

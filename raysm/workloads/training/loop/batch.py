"""Batches: read from a data set, split into inputs and target, moved to the device, and cut into pieces."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from raysm.errors import InvalidInput
from raysm.workloads.training.loop.random_state import has_drawn, seed_of, seeded

__all__ = ["Reader", "inputs_and_target", "on_device", "pieces", "rows_of"]


def inputs_and_target(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """Split a batch: its last item is the target, those before are the model's arguments.

    Raises:
        InvalidInput: It is no tuple or list of at least two items.
    """
    # A dict has no order in which its values could be arguments.
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise InvalidInput(
            f"training.step takes (input, …, target), got a {type(batch).__name__}; give a tuple of tensors whose "
            "last is what the loss compares with"
        )
    return tuple(batch[:-1]), batch[-1]


def on_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with all its tensors on ``device``."""
    if device.type == "cpu":
        return batch
    # Any nesting that the user's collate makes; without waiting, as the loader's memory is pinned.
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), batch)


def rows_of(batch: Any) -> int:
    """Return the rows of a batch: the first dimension of its tensors.

    Raises:
        InvalidInput: It has no tensor, or tensors of different lengths.
    """
    shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    # One without rows, or with others, would be weighed by what it has not: a number for the whole batch, say.
    if not shapes or len({shape[:1] for shape in shapes}) > 1 or not shapes[0]:
        raise InvalidInput(
            f"the rows of a batch are the first dimension of its tensors, whose shapes are {shapes}: give each tensor"
            " one entry for each row"
        )
    return shapes[0][0]


def pieces(batch: Any, count: int) -> Iterator[tuple[Any, float]]:
    """Yield the rows of a batch in ``count`` pieces that differ by one row at most, and each one's share of the rows.

    A piece for which no row is left is the first row with a share of 0: ranks that compute together have to compute
    as many pieces, also where one has fewer rows.
    """
    rows = rows_of(batch)
    each, more = divmod(rows, count)
    first = 0
    for number in range(count):
        size = each + (number < more)
        begin, stop = (first, first + size) if size else (0, 1)
        yield _cut(batch, begin, stop), size / rows
        first += size


def _cut(batch: Any, begin: int, stop: int) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[begin:stop], batch)


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

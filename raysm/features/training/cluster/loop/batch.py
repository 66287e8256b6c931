"""Batches: read from a data set, split into inputs and target, moved, and cut into pieces."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from raysm.errors import InvalidInput
from raysm.features.training.cluster.loop.random_state import has_drawn, seed_of, seeded


@dataclass(frozen=True)
class Batch:
    """A batch of which the form is checked: the model's inputs, and the target of the loss."""

    inputs: tuple[Any, ...]
    target: Any

    @classmethod
    def of(cls, batch: Any) -> "Batch":
        """Return the batch of a user, (input, …, target).

        Raises:
            InvalidInput: It has another form.
        """
        # A dict has no order in which its values could be arguments.
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise InvalidInput(
                f"training.step takes (input, …, target), got a {type(batch).__name__}; "
                "give a tuple of tensors"
            )
        return cls(tuple(batch[:-1]), batch[-1])

    @functools.cached_property
    def rows(self) -> int:
        """The number of rows, which is the first dimension of all tensors.

        Raises:
            InvalidInput: The tensors differ in it.
        """
        leaves = pytree.tree_leaves((self.inputs, self.target))
        shapes = [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        # A tensor with other rows, such as one number for the whole batch, would get a wrong
        # weight.
        if not shapes or len({shape[:1] for shape in shapes}) > 1 or not shapes[0]:
            raise InvalidInput(
                f"a batch's rows are its tensors' first dimension, got shapes {shapes}: give each "
                "tensor an entry per row"
            )
        return shapes[0][0]

    def on(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        return Batch(on_device(self.inputs, device), on_device(self.target, device))

    def pieces(self, count: int) -> "Iterator[tuple[Batch, float]]":
        """Yield the batch in ``count`` pieces, and each one's share of the rows.

        The pieces differ by one row at most. A piece without rows is the first row with a share of
        0: ranks that compute together need equally many pieces.
        """
        each, more = divmod(self.rows, count)
        first = 0
        for number in range(count):
            size = each + (number < more)
            begin, stop = (first, first + size) if size else (0, 1)
            piece = Batch(_slice(self.inputs, begin, stop), _slice(self.target, begin, stop))
            yield piece, size / self.rows
            first += size


def on_device(values: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return values
    # Any nesting that the user's collate makes; without waiting, as the loader's memory is pinned.
    return pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), values
    )


def _slice(values: Any, begin: int, stop: int) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[begin:stop], values)


class Reader(Dataset[Any]):
    def __init__(self, dataset: Any, seed: int, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._seed = seed
        self._collate = collate
        self._reads_slices = hasattr(dataset, "__getitems__")
        # Plain tensors draw nothing, and are cut in one go: row by row takes a hundred times as
        # long.
        self._plain = _plain(dataset) if collate is default_collate else None

    def __getitem__(self, rows_of_epoch: tuple[int, Sequence[int]]) -> Any:
        epoch, rows = rows_of_epoch
        if self._plain is not None:
            tensors, subsets = self._plain
            index = torch.tensor(rows)
            for subset in subsets:
                index = subset[index]
            return [tensor[index] for tensor in tensors]
        seeds = [seed_of(self._seed, epoch, row) for row in rows]
        if self._reads_slices:
            with seeded(iter(seeds)) as next_sample:
                next(next_sample)
                with has_drawn() as drawn:
                    samples = self._dataset.__getitems__(list(rows))
                if not drawn():
                    return self._collate(samples)
            # All rows drew by the first row's seed: a row's numbers would depend on how many
            # workers share the batch.
            self._reads_slices = False
        with seeded(iter(seeds)) as next_sample:
            return self._collate(
                [self._sample(row) for row, _ in zip(rows, next_sample, strict=True)]
            )

    def _sample(self, row: int) -> Any:
        if hasattr(self._dataset, "__getitems__"):
            (sample,) = self._dataset.__getitems__([row])
            return sample
        return self._dataset[row]


def _plain(dataset: Any) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]] | None:
    subsets = []
    while type(dataset) is Subset:
        subsets.append(torch.as_tensor(dataset.indices, dtype=torch.int64))
        dataset = dataset.dataset
    return (dataset.tensors, subsets) if type(dataset) is TensorDataset else None

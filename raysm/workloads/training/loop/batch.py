"""A batch: its inputs and its target, where its tensors are, and its rows in pieces."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from raysm.errors import InvalidInput

__all__ = ["inputs_and_target", "on_device", "pieces", "rows_of"]


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

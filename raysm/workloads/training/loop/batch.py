"""A batch: its inputs and its target, and where its tensors are."""

from typing import Any

import torch
from torch.utils import _pytree as pytree

from raysm.errors import InvalidInput

__all__ = ["inputs_and_target", "on_device"]


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

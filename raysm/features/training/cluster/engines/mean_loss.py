"""The loss as a mean: what it divides by, and whether the parts of a batch add up to the whole.

A batch is computed in parts: slices of workers, pieces, micro-batches. Their mean losses add up to
that of the batch if each is weighed by what its mean divides by. That is the number of rows, unless
the user gives a divisor.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop.random_state import capture_state, restore_state

Loss = Callable[[Any, Any], torch.Tensor]
"""(output, target) -> the mean over the rows, or over what the divisor counts; a scalar."""

Divisor = Callable[[Any], Any]
"""target -> what the mean of the loss divides by: a number of tokens, a sum of weights."""

UNEVEN = (
    "the loss of the first batch is not the mean of the losses of its halves, so the curve depends"
    " on the number of workers and on accumulate; {advice}"
)
NO_DIVISOR = (
    "if the loss divides by tokens or weights, give training.prepare(divisor=…), a function of the"
    " target that returns that number"
)
WRONG_DIVISOR = "the divisor of training.prepare must return what the mean of the loss divides by"

RELATIVE = 3e-5
ABSOLUTE = 1e-6
"""Differences that rounding to float32 makes."""
RELATIVE_16_BIT = 3e-2
TIMES_NOISE = 10
"""A difference counts if it is this many times that of the same rows in reversed order."""


class MeanLoss:
    """The user's loss with its divisor, and a comparison of its first batch with the halves.

    A batch of one row has no halves; then the next batch is compared.
    """

    def __init__(self, loss: Loss, divisor: Divisor | None = None) -> None:
        self._loss = loss
        self.divisor = divisor
        self.is_checked = False
        self.is_uneven = False

    def __call__(self, output: Any, target: Any) -> torch.Tensor:
        if self.is_checked or torch.is_inference_mode_enabled() or _row_count(output, target) < 2:
            return self._loss(output, target)
        self.is_checked = True
        tensors = _tensors((output, target))
        random = capture_state()
        versions = [tensor._version for tensor in tensors]
        loss = self._loss(output, target)
        # A loss that draws random numbers or changes its arguments differs in each call.
        if random == capture_state() and versions == [tensor._version for tensor in tensors]:
            self.is_uneven = self._differs(output, target, loss)
            restore_state(random)
        return loss

    def compute(self, output: Any, target: Any) -> torch.Tensor:
        """Return the loss without a comparison."""
        return self._loss(output, target)

    def weigh(self, target: Any, rows: int) -> float:
        """Return what the loss of this target divides by."""
        if self.divisor is None:
            return float(rows)
        weight = self.divisor(target)
        try:
            return float(weight)
        except (TypeError, ValueError, RuntimeError) as error:
            message = f"the divisor returned {weight!r}; it must return one number"
            raise InvalidRequest(message) from error

    def metric(self) -> Callable[[Any, Any], Any]:
        def loss(output: Any, target: Any) -> Any:
            mean = self(output, target)
            return mean if self.divisor is None else (mean, self.weigh(target, 0))

        return loss

    def advice(self) -> str:
        return UNEVEN.format(advice=NO_DIVISOR if self.divisor is None else WRONG_DIVISOR)

    @torch.no_grad()
    def _differs(self, output: Any, target: Any, loss: torch.Tensor) -> bool:
        rows = _row_count(output, target)

        def mean_and_weight(cut: Callable[[torch.Tensor], torch.Tensor]) -> tuple[float, float]:
            both = (output, target)
            parts = pytree.tree_map_only(torch.Tensor, lambda tensor: cut(tensor.detach()), both)
            with _state_kept(self._loss):
                mean = float(self._loss(*parts).detach())
                return mean, self.weigh(parts[1], _row_count(parts))

        try:
            whole = float(loss.detach())
            reordered, weight = mean_and_weight(lambda tensor: tensor.flip(0))
            halves = [
                mean_and_weight(lambda tensor: tensor[: rows // 2]),
                mean_and_weight(lambda tensor: tensor[rows // 2 :]),
            ]
        # A loss that takes batches of one size only cannot be compared.
        except Exception:
            return False
        if not (math.isfinite(whole) and weight > 0):
            return False
        together = sum(mean * part for mean, part in halves if part != 0) / weight
        values = [whole, *(mean for mean, part in halves if part != 0)]
        noise = abs(whole - reordered)
        scale = max(abs(value) for value in values)
        relative = RELATIVE_16_BIT if all(_has_16_bits(value) for value in values) else RELATIVE
        allowed = max(ABSOLUTE, relative * scale, TIMES_NOISE * noise)
        # Written so that a half without a mean, NaN, differs.
        return not abs(whole - together) <= allowed


def zero_of(output: Any) -> torch.Tensor | None:
    """Return 0 with zero gradients for all outputs; None if no output has a gradient.

    A mean over nothing is NaN, and so is each gradient times NaN.
    """
    tensors = [tensor for tensor in _tensors(output) if tensor.requires_grad]
    if not tensors:
        return None
    return torch.stack([tensor.sum() * 0.0 for tensor in tensors]).sum()


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _row_count(*values: Any) -> int:
    """Return the first dimension of all tensors, or 0 if they differ or are distributed."""
    tensors = _tensors(values)
    if any(isinstance(tensor, DTensor) for tensor in tensors):
        return 0
    sizes = {tensor.shape[:1] for tensor in tensors}
    return sum(sizes.pop()) if len(sizes) == 1 else 0


def _has_16_bits(value: float) -> bool:
    number = torch.tensor(value, dtype=torch.float32)
    return any(bool(number.to(kind).float() == number) for kind in (torch.bfloat16, torch.float16))


@contextlib.contextmanager
def _state_kept(loss: Loss) -> Iterator[None]:
    """Restore the attributes and buffers of a loss that keeps a state, such as a counter."""
    modules = [*loss.modules()] if isinstance(loss, nn.Module) else []
    owners = [*modules] if modules else [loss, getattr(loss, "__self__", None)]
    # The attributes of a class are no dict.
    dicts = [vars(owner) for owner in owners if type(getattr(owner, "__dict__", None)) is dict]
    before = [(now, dict(now)) for now in dicts]
    buffers = [(module, dict(module._buffers)) for module in modules]
    for module, own in buffers:
        module._buffers = {
            name: None if buffer is None else buffer.clone() for name, buffer in own.items()
        }
    try:
        yield
    finally:
        for now, attributes in before:
            for name in now.keys() - attributes.keys():
                del now[name]
            now.update(attributes)

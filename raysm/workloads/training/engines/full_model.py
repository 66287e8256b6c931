"""Forward and backward of a model that a rank sees as a whole: alone, replicated, sharded, or with tensors cut."""

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.loop.batch import inputs_and_target, on_device

__all__ = ["Loss", "FullModel", "autocast"]

Loss = Callable[[Any, Any], torch.Tensor]
"""(output, target) -> the mean over the rows, a scalar."""


@dataclass(kw_only=True, slots=True)
class FullModel:
    """The engine of every mode but pipelines."""

    model: nn.Module
    """As wrapped."""
    loss: Loss
    """Of an output and a target."""
    device: torch.device
    """Where the model is."""
    precision: torch.dtype | None = None
    """Type of the matrix products in the forward pass; None is the parameters' own."""
    counts: bool = True
    """Whether this rank accounts for its slice's loss: one of those that share a slice does."""
    averaged: Mapping[str, nn.Parameter] = field(default_factory=dict)
    """What DDP averages, by name: it waits for each of them in every backward pass."""

    def forward_backward(self, batch: Any, factor: float) -> torch.Tensor:
        """Add the gradients of ``factor`` x the loss; return the loss, 0 where another rank accounts for it.

        Raises:
            InvalidRequest: A parameter has no gradient, so that DDP has not averaged those that wait beside it.
        """
        inputs, target = inputs_and_target(on_device(batch, self.device))
        with autocast(self.device, self.precision):
            loss = self.loss(self.model(*inputs), target)
        # Times 1.0 is the same number but one more node of the graph, in every step of most trainings.
        (loss if factor == 1.0 else loss * factor).backward()  # type: ignore[no-untyped-call]
        # DDP would wait for them at the next step's start, and name an index: here they still have names.
        unused = [name for name, parameter in self.averaged.items() if parameter.grad is None]
        if unused:
            raise InvalidRequest(
                f"the loss does not depend on {', '.join(unused)}, whose gradients DDP waits for: freeze them by "
                "requires_grad_(False) before prepare, or train by Parallel(shard=…), which does not wait"
            )
        # Of the ranks of a tensor group each has the same loss; the sum over all ranks must have it once.
        return loss.detach() if self.counts else torch.zeros_like(loss)


def autocast(device: torch.device, precision: torch.dtype | None) -> AbstractContextManager[Any]:
    """Return the context in which matrix products are computed in ``precision``; None leaves them as they are."""
    return contextlib.nullcontext() if precision is None else torch.autocast(device.type, precision)

"""The first step after a restart, twice: the first time so that the second adds up as an undisturbed training would.

In its first backward pass DDP lays the gradients out for the all-reduce by the order of the parameters, and in all
later ones by the order in which they became ready. A ring of more than two ranks sums each piece in an order that
depends on where it lies: without the rehearsal the first step after a restart would differ in the last bit.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from raysm.workloads.training.engines.metrics import Metric
from raysm.workloads.training.engines.protocol import Engine
from raysm.workloads.training.loop.random_state import capture_state, restore_state
from raysm.workloads.training.parallel.trainer import Trainer

__all__ = ["rehearse"]


def rehearse(trainer: Trainer) -> None:
    """Let the next step of a model under DDP be rehearsed; what is no DDP, or has two ranks at most, needs none."""
    # Two summands have one sum whatever their order: the rehearsal would cost a step for nothing.
    if isinstance(trainer.model, DistributedDataParallel) and trainer.session.world_size > 2:
        trainer.engine = _Rehearsing(trainer)


class _Rehearsing:
    """An engine that gives its place back to the real one at its first call."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._engine: Engine = trainer.engine

    def forward_backward(self, batch: Any, factor: float) -> torch.Tensor:
        """Go forward and backward once for nothing, and once again."""
        self._trainer.engine = self._engine
        parts = self._trainer.parts
        random, buffers = capture_state(), [buffer.clone() for buffer in parts.buffers()]
        self._engine.forward_backward(batch, factor)
        # As they were before the first step: a parameter that is not used has none, and keeps none.
        parts.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in zip(parts.buffers(), buffers, strict=True):
                buffer.copy_(before)
        restore_state(random)
        return self._engine.forward_backward(batch, factor)

    def measure(self, batch: Any, metrics: Sequence[Metric]) -> torch.Tensor:
        """Measure at once: without gradients DDP lays nothing out."""
        return self._engine.measure(batch, metrics)

"""What every mode's forward and backward looks like to the step around it."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from raysm.workloads.training.engines.metrics import Metric

__all__ = ["Engine"]


class Engine(Protocol):
    """One mode's forward and backward."""

    def forward_backward(self, batch: Any, factor: float) -> torch.Tensor:
        """Add the gradients of ``factor`` x the loss; return the loss of this data rank's slice.

        Ranks that do not have the loss, or whose slice another rank accounts for, return 0.
        """

    def measure(self, batch: Any, metrics: Sequence[Metric]) -> torch.Tensor:
        """Return the sums of the metrics over the rows of this data rank's slice, as ``metrics.sums`` does.

        Ranks that do not have the outputs, or whose slice another rank accounts for, return zeros. Called without
        gradients, in the mode of evaluation.
        """

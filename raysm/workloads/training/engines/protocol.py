"""What every mode's forward and backward looks like to the step around it."""

from typing import Any, Protocol

import torch

__all__ = ["Engine"]


class Engine(Protocol):
    """One mode's forward and backward."""

    def forward_backward(self, batch: Any, factor: float) -> torch.Tensor:
        """Add the gradients of ``factor`` x the loss; return the loss of this data rank's slice.

        Ranks that do not have the loss, or whose slice another rank accounts for, return 0.
        """

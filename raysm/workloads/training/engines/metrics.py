"""What a model is measured by: means over rows become sums, which any number of uneven slices add up to exactly."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from raysm.errors import InvalidRequest

__all__ = ["Metric", "no_sums", "sums"]

Metric: TypeAlias = Callable[[Any, Any], Any]
"""(output, target) -> the mean over the rows: a number, or a tensor of one."""


def no_sums(metrics: Sequence[Metric]) -> torch.Tensor:
    """Return the sums over no row, float64[metrics + 1] on the CPU."""
    return torch.zeros(len(metrics) + 1, dtype=torch.float64)


def sums(metrics: Sequence[Metric], output: Any, target: Any, rows: int) -> torch.Tensor:
    """Return the sum of each metric over the rows, and their number: float64[metrics + 1] on the CPU.

    Raises:
        InvalidRequest: A metric returns more than one number, or none.
    """
    # In float64: a float32 counts rows exactly up to 16 million only.
    return torch.tensor([*(_mean(metric, output, target) * rows for metric in metrics), rows], dtype=torch.float64)


def _mean(metric: Metric, output: Any, target: Any) -> float:
    mean = metric(output, target)
    if torch.is_tensor(mean):
        if mean.numel() != 1:
            raise InvalidRequest(
                f"training.evaluate: {_name(metric)} returned a tensor of shape {tuple(mean.shape)}; it must be the"
                " mean over the rows, one number"
            )
        return float(mean.item())
    # Numbers of NumPy and of scikit-learn's functions are taken as they are.
    try:
        return float(mean)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"training.evaluate: {_name(metric)} returned {mean!r}, which is no number") from error


def _name(metric: Metric) -> str:
    return getattr(metric, "__name__", type(metric).__name__)

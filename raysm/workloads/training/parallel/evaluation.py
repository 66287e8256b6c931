"""Computing on data that nothing is learned from, on all ranks: exact means, and no trace in the training.

What flows in are each data rank's slices of some batches; what flows out are means over all rows, alike on all ranks.
A mean is that of the rows, not of the slices' means: slices and batches may be uneven.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raysm.workloads.training.engines.metrics import no_sums
from raysm.workloads.training.engines.protocol import Engine
from raysm.workloads.training.engines.running_averages import averages_of_first
from raysm.workloads.training.loop.session import Session

__all__ = ["evaluation", "means"]


@contextmanager
def evaluation(model: nn.Module, replicas: "Sequence[dist.ProcessGroup]", device: torch.device) -> Iterator[None]:
    """Compute without gradients, in the mode of evaluation, as the model does that a checkpoint would keep.

    Args:
        model: All modules of this rank.
        replicas: For each dimension of the mesh whose ranks have the same norms, those of this rank.
        device: Whose random numbers stay as they are.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        devices = [device] if device.type == "cuda" else []
        # Layers that draw in the mode of evaluation, too, must not change what the training draws next.
        with torch.no_grad(), torch.random.fork_rng(devices), averages_of_first(model, replicas):
            yield
    finally:
        # One by one: modules that the user has in the mode of evaluation, a frozen part, stay in it.
        for module, training in modes.items():
            module.training = training


def means(
    session: Session, engine: Engine, batches: Iterable[Any], metrics: Mapping[str, Callable[[Any, Any], Any]]
) -> dict[str, float]:
    """Return each metric's mean over all rows; every rank has to call it, with as many batches.

    Args:
        session: Whose ``coming`` says whether a slice counts.
        engine: Of the mode.
        batches: This data rank's slices; while one is handed out, ``session.coming`` is it.
        metrics: By name.
    """
    functions = list(metrics.values())
    total = no_sums(functions)
    for batch in batches:
        slice_sums = engine.measure(batch, functions)
        # A rank without a row of its own computes one that is another's.
        if session.share is None or session.share > 0:
            total += slice_sums
    if session.cpu_group is not None:
        # Sums and counts in one message, in float64: the mean is then exact however the rows lie over the ranks.
        dist.all_reduce(total, group=session.cpu_group)
    *sums, rows = total.tolist()
    return {name: value / rows for name, value in zip(metrics, sums, strict=True)}

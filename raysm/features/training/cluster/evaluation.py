"""Measure the model on data that it does not learn from: exact means over all rows, without effect on the training."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, default_collate

from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.engines.full_model import Engine, no_sums
from raysm.features.training.cluster.loop.batch_norms import averages_of_first
from raysm.features.training.cluster.loop.sampler import one_pass
from raysm.features.training.cluster.loop.session import Session, current


@contextmanager
def evaluation(
    model: nn.Module, replicas: "Sequence[dist.ProcessGroup]", device: torch.device
) -> Iterator[None]:
    """Compute without gradients, in evaluation mode, like the model that a checkpoint would keep."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        devices = [device] if device.type == "cuda" else []
        # Layers that also draw random numbers in evaluation mode must not change what the training
        # draws next.
        with torch.no_grad(), torch.random.fork_rng(devices), averages_of_first(model, replicas):
            yield
    finally:
        # One by one: modules that the user keeps in evaluation mode, such as a frozen part, stay in
        # it.
        for module, training in modes.items():
            module.training = training


def means(
    session: Session,
    engine: Engine,
    batches: Iterable[Any],
    metrics: Mapping[str, Callable[[Any, Any], Any]],
) -> dict[str, float]:
    """Return each metric's mean over all rows; every rank must call it, with equally many batches."""
    functions = list(metrics.values())
    total = no_sums(functions)
    for batch in batches:
        slice_sums = engine.measure(batch, functions)
        # A rank without a row of its own computes a row of another rank.
        if session.share is None or session.share > 0:
            total += slice_sums
    if session.cpu_group is not None:
        # Sums and counts in one message, in float64: the mean is then exact however the rows lie
        # over the ranks.
        dist.all_reduce(total, group=session.cpu_group)
    empty = [
        name for name, (_, divisor) in zip(metrics, total.tolist(), strict=True) if divisor == 0
    ]
    if empty:
        raise InvalidInput(
            f"training.evaluate: {empty[0]} has no mean, since what it divides by adds up to 0"
        )
    return {
        name: value / divisor
        for name, (value, divisor) in zip(metrics, total.tolist(), strict=True)
    }


def evaluate(
    dataset: Dataset[Any] | Sequence[Any],
    *,
    batch_size: int,
    metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    loader_workers: int = 0,
    collate: Callable[[list[Any]], Any] = default_collate,
) -> dict[str, float]:
    """Return the loss, and other metrics, of the model as it is now: exact means over a data set.

    The mean is over rows, or over what a divisor counts. Every worker must call it. The workers
    share the rows, and each row counts once. It computes in evaluation mode and in the precision of
    the training, and changes neither random numbers nor running averages nor the position in the
    data. Replicas whose batch norms have averages of their own use those of the first, which
    checkpoints keep. ::

        for epoch in training.epochs(10):
            for batch in training.batches(dataset, batch_size=256):
                training.step(batch)
            means = training.evaluate(validation, batch_size=1024, metrics={"accuracy": accuracy})
            training.report(**{f"validation_{name}": value for name, value in means.items()})

    Args:
        dataset: Has ``len()`` and ``[row]``, and is the same on every instance; read in its own
            order.
        batch_size: Rows over all workers at a time, any number.
        metrics: Name -> (output, target) -> the mean over the rows that it gets, one number; or the
            pair (mean, what it divides by), as for the accuracy over tokens that are no padding.
        loader_workers: Processes of each worker that read ahead; 0 reads in the worker itself.
        collate: Makes a batch of samples, as for ``training.batches``.

    Returns:
        ``loss``, by the loss and divisor of ``training.prepare``, and each metric, by name; the
        same on every worker.

    Raises:
        InvalidRequest: ``prepare`` has not been called, a number is out of range, a metric is
            called ``loss``, or does not return one number.
        InvalidInput: What the mean of the loss or of a metric divides by adds up to 0.
    """
    session = current()
    if session.trainer is None:
        raise InvalidRequest("training.evaluate was called before training.prepare")
    metrics = metrics or {}
    # Checked before the first batch: one of two values with one name would be lost, after minutes
    # of computing.
    if "loss" in metrics:
        raise InvalidRequest(
            "training.evaluate: 'loss' is that of training.prepare, and returned in any case; name the metric otherwise"
        )
    batches = one_pass(
        session, dataset, batch_size=batch_size, loader_workers=loader_workers, collate=collate
    )
    found: dict[str, float] = session.trainer.evaluate(batches, metrics)
    return found

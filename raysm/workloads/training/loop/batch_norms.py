"""Refuse in the first step batches that a batch norm could not train on.

Batch norms need several values per channel, and the last batch of an epoch may leave a worker a single row. Torch says
so when that batch comes, at the end of the first epoch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.hooks import RemovableHandle

from raysm.errors import InvalidRequest
from raysm.workloads.training.loop.session import Observer, Session


class BatchNormCheck(Observer):
    """Looks at the batch norms of a model in the first step of each loop over ``batches``."""

    def __init__(self, session: Session, model: nn.Module, accumulate: int = 1) -> None:
        self._session, self._accumulate = session, accumulate
        self._norms = {
            name: module
            for name, module in model.named_modules()
            # A SyncBatchNorm sees the rows of all ranks together, so one row on each is enough for it.
            if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm)
        }
        self._seen: Any = None
        self._hooks: list[RemovableHandle] = []

    def on_step_begin(self, step: int) -> None:
        part = self._session.position.coming
        # Once a loop: hooks in each forward would cost every step.
        if part is None or part.order is self._seen:
            return
        self._seen = part.order
        if part.fewest_rows // self._accumulate <= 1 < part.rows:
            self._hooks = [
                module.register_forward_pre_hook(lambda module, inputs, name=name: self._look(name, module, inputs[0]))
                for name, module in self._norms.items()
            ]

    def on_step_end(self, step: int, loss: float) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _look(self, name: str, norm: nn.Module, values: torch.Tensor) -> None:
        part = self._session.position.coming
        if part is None or not norm.training or values.dim() < 2:
            return
        # More values than rows: images, say, have several per channel in each row.
        if values.numel() // values.shape[1] <= -(-part.rows // self._accumulate):
            pieces = f", each in accumulate={self._accumulate} pieces" if self._accumulate > 1 else ""
            raise InvalidRequest(
                f"training.step: the last batch of an epoch leaves a worker 1 row ({part.order.samples} samples in"
                f" batches of {part.order.batch_size}, over {self._session.data_ranks} data ranks{pieces}), and"
                f" {type(norm).__name__} ({name}) needs more than one value per channel to train: give"
                " training.batches drop_last=True, or another batch_size"
            )


@contextmanager
def averages_kept(block: nn.Module) -> Iterator[None]:
    """Let batch norms average into copies: a batch that is computed again has been counted."""
    # _NormBase is the base of all norms with running averages, instance norms among them; torch has no public one.
    norms = [module for module in block.modules() if isinstance(module, _NormBase)]
    before = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update(
            {name: buffer if buffer is None else buffer.clone() for name, buffer in norm._buffers.items()}
        )
    try:
        yield
    finally:
        for norm, buffers in zip(norms, before, strict=True):
            norm._buffers.update(buffers)


@contextmanager
def averages_of_first(module: nn.Module, replicas: "Sequence[dist.ProcessGroup]") -> Iterator[None]:
    """Let batch norms have the averages of the first replica, which are those that a checkpoint keeps.

    ``replicas`` has this rank's group in each dimension of the mesh whose ranks have the same norms.
    """
    with averages_kept(module):
        norms = [inner for inner in module.modules() if isinstance(inner, _NormBase)]
        for buffer in [buffer for norm in norms for buffer in norm.buffers(recurse=False)]:
            for group in replicas:
                dist.broadcast(buffer, group=group, group_src=0)
        yield


@contextmanager
def without_trace(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Keep what is computed inside from changing running averages and random numbers."""
    devices = [device] if device.type == "cuda" else []
    # On a CPU none is named: fork_rng would else ask every GPU of the machine.
    with averages_kept(module), torch.random.fork_rng(devices):
        yield


@contextmanager
def normed_by_averages(module: nn.Module) -> Iterator[None]:
    """Let batch norms use their running averages and leave them as they are, for a row that does not count.

    Such a row stands alone, and batch norms cannot normalise one row by itself.
    """
    norms = [inner for inner in module.modules() if isinstance(inner, _NormBase) and inner.training]
    for norm in norms:
        # Not module.eval(): dropout has to go on as in training, and draw as many numbers.
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()

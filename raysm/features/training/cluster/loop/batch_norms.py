"""Keep the running averages of norms while a model learns shapes, recomputes a block, or is evaluated."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


@contextmanager
def averages_kept(block: nn.Module) -> Iterator[None]:
    """Let batch norms average into copies, for a batch that is computed again and was counted before."""
    # _NormBase is the base of all norms with running averages, instance norms among them; torch has
    # no public one.
    norms = [module for module in block.modules() if isinstance(module, _NormBase)]
    before = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update(
            {
                name: buffer if buffer is None else buffer.clone()
                for name, buffer in norm._buffers.items()
            }
        )
    try:
        yield
    finally:
        for norm, buffers in zip(norms, before, strict=True):
            norm._buffers.update(buffers)


@contextmanager
def averages_of_first(module: nn.Module, replicas: "Sequence[dist.ProcessGroup]") -> Iterator[None]:
    """Let batch norms use the averages of the first replica, which checkpoints keep."""
    with averages_kept(module):
        norms = [inner for inner in module.modules() if isinstance(inner, _NormBase)]
        for buffer in [buffer for norm in norms for buffer in norm.buffers(recurse=False)]:
            for group in replicas:
                dist.broadcast(buffer, group=group, group_src=0)
        yield


@contextmanager
def without_trace(module: nn.Module, device: torch.device) -> Iterator[None]:
    devices = [device] if device.type == "cuda" else []
    # On a CPU the list is empty: without one, fork_rng would ask every GPU of the machine.
    with averages_kept(module), torch.random.fork_rng(devices):
        yield


@contextmanager
def normed_by_averages(module: nn.Module) -> Iterator[None]:
    """Let batch norms leave their running averages as they are, for a single row that does not count."""
    norms = [inner for inner in module.modules() if isinstance(inner, _NormBase) and inner.training]
    for norm in norms:
        # Not module.eval(), because dropout must work as in training, and draw as many numbers.
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()

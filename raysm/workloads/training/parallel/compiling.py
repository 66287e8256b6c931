"""A model's blocks as compiled code: ``torch.compile`` of each, after a trial of what it needs on this machine.

What flows in are the blocks; what flows out are the same modules, whose forward is compiled in the first step. By
blocks and not as a whole: alike blocks are compiled once, and what is around them (shards that are gathered, stages,
replicas) stays as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn

from raysm.errors import InvalidRequest

__all__ = ["check_compiler", "compile_blocks"]


Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A function -> the same, compiled when it is first called."""


def check_compiler(device: torch.device, group: "dist.ProcessGroup | None", compiled: Compile = torch.compile) -> None:
    """Check that code can be compiled on every rank, by compiling a line of it; every rank has to call it.

    Args:
        device: Where this rank computes.
        group: All ranks, of the CPU; None in a single process.
        compiled: What compiles.

    Raises:
        InvalidRequest: It cannot on some rank; all raise the same.
    """
    # All hear of it: a rank that went on alone would wait for the others in its first step.
    problem = _problem(device, compiled)
    problems = [problem] * (dist.get_world_size(group) if group is not None else 1)
    if group is not None:
        dist.all_gather_object(problems, problem, group=group)
    for rank, text in enumerate(problems):
        if text:
            raise InvalidRequest(
                f"compile=True: torch.compile cannot compile for {device.type} on rank {rank}: {text}; install what it"
                " names (on a CPU a C++ compiler: apt-get install g++, or conda install gxx; on a GPU triton and a C"
                " compiler), or leave compile out"
            )


def compile_blocks(module: nn.Module, blocks: Sequence[str], compiled: Compile = torch.compile) -> None:
    """Have each block of a model, or of a stage of one, compute by compiled code; without blocks the module itself."""
    modules = dict(module.named_modules())
    for name in blocks or [""]:
        if name in modules:
            # The method, not a module around it: names stay as they are, and hooks (shards) stay outside.
            modules[name].forward = compiled(modules[name].forward)


def _problem(device: torch.device, compiled: Compile) -> str:
    """Return why nothing can be compiled here; "" if it can."""
    try:
        compiled(_line)(torch.ones(4, device=device))
    # Whatever it raises: of the compiler, of a missing header, of the very version of Python.
    except Exception as error:
        # The last lines are advice how to log more.
        return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return ""


def _line(values: torch.Tensor) -> torch.Tensor:
    return values * 2 + 1

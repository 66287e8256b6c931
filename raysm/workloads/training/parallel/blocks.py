"""The blocks of a model: the units in which it is sharded, recomputed, cut into stages and compiled.

Blocks are the children of one ``nn.Sequential`` or ``nn.ModuleList``, such as a transformer's layers.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn

from raysm.errors import InvalidRequest

Blocks = str | Sequence[str] | None
"""The container's name, or the names of the modules at which stages begin; None finds the container by itself."""


def container_of_blocks(model: nn.Module, blocks: Blocks = None) -> str | None:
    """Return the name of the module whose children are the blocks; "" is the model itself, None if there is none.

    Without ``blocks`` it is the model, if that is a Sequential, else the Sequential or ModuleList with the most
    parameters.
    """
    containers: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        # A container with one child does not count: many models wrap a single layer in a Sequential.
        if isinstance(module, (nn.Sequential, nn.ModuleList)) and len(module) > 1
    }
    if isinstance(blocks, str):
        if blocks not in containers:
            names = ", ".join(repr(name) for name in containers) or "none"
            raise InvalidRequest(
                f"blocks={blocks!r} is no Sequential or ModuleList of {type(model).__name__} with several children; "
                f"there are: {names}"
            )
        return blocks
    if not containers:
        return None
    # The most parameters: heads and embeddings may be in containers too, but the layers of a transformer outweigh them.
    sizes = {name: sum(parameter.numel() for parameter in module.parameters()) for name, module in containers.items()}
    return max(containers, key=lambda name: sizes[name])


def block_names(model: nn.Module, blocks: Blocks = None) -> list[str]:
    """Return the names of the blocks, in order; [] if the model has none."""
    container = container_of_blocks(model, blocks)
    if container is None:
        return []
    # The model itself may be the container; its name is empty.
    prefix = f"{container}." if container else ""
    return [prefix + name for name, _ in model.get_submodule(container).named_children()]


Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def check_compiler(device: torch.device, group: "dist.ProcessGroup | None", compiled: Compile = torch.compile) -> None:
    """Check that code can be compiled on every rank, by compiling a line of it; every rank must call it."""
    # All ranks exchange their errors: one that continued alone would wait for the others in its first step.
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
    """Compile each block of a model, or of a stage; without blocks the module itself."""
    modules = dict(module.named_modules())
    for name in blocks or [""]:
        if name in modules:
            # Compile the method and do not wrap the module: names stay as they are, and hooks (shards) stay outside.
            modules[name].forward = compiled(modules[name].forward)


def _problem(device: torch.device, compiled: Compile) -> str:
    """Return why nothing can be compiled here; "" if it can."""
    try:
        compiled(_line)(torch.ones(4, device=device))
    # Any exception: of the compiler, a missing header, or this version of Python.
    except Exception as error:
        # The last lines say how to log more.
        return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return ""


def _line(values: torch.Tensor) -> torch.Tensor:
    return values * 2 + 1

"""The blocks of a model: units that are sharded, recomputed, cut into stages and compiled.

Blocks are the children of one ``nn.Sequential`` or ``nn.ModuleList``, such as a transformer's
layers.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from raysm.errors import InvalidRequest

Blocks = str | Sequence[str] | None
"""The container's name, or the names of the modules at which stages begin; None finds the container
by itself."""


def container_of_blocks(model: nn.Module, blocks: Blocks = None) -> str | None:
    """Return the name of the module whose children are the blocks, by default the largest.

    The name of the model itself is "".
    """
    containers: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        # A container with one child does not count: many models wrap a single layer in a
        # Sequential.
        if isinstance(module, (nn.Sequential, nn.ModuleList)) and len(module) > 1
    }
    if isinstance(blocks, str):
        if blocks not in containers:
            names = ", ".join(repr(name) for name in containers) or "none"
            raise InvalidRequest(
                f"blocks={blocks!r} is no Sequential or ModuleList of {type(model).__name__} with "
                f"several children; there are: {names}"
            )
        return blocks
    if not containers:
        return None
    # The most parameters: heads and embeddings may be in containers too, but the layers of a
    # transformer outweigh them.
    sizes = {
        name: sum(parameter.numel() for parameter in module.parameters())
        for name, module in containers.items()
    }
    return max(containers, key=lambda name: sizes[name])


def block_names(model: nn.Module, blocks: Blocks = None) -> list[str]:
    container = container_of_blocks(model, blocks)
    if container is None:
        return []
    # The model itself may be the container; its name is empty.
    prefix = f"{container}." if container else ""
    return [prefix + name for name, _ in model.get_submodule(container).named_children()]


Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def check_compiler(device: torch.device, compiled: Compile = torch.compile) -> None:
    """Compile a line of code: a missing compiler is an error here, and not in the first step."""
    try:
        compiled(lambda values: values * 2 + 1)(torch.ones(4, device=device))
    # Any exception: of the compiler, a missing header, or this version of Python.
    except Exception as error:
        # The last lines of its message say how to log more.
        first = next(
            (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
        )
        raise InvalidRequest(
            f"compile=True: torch.compile cannot compile for {device.type}: {first}; install what "
            "it names (on a CPU a C++ compiler: apt-get install g++, or conda install gxx; on a "
            "GPU triton and a C compiler), or leave compile out"
        ) from error


def compile_blocks(module: nn.Module, blocks: Sequence[str]) -> None:
    modules = dict(module.named_modules())
    for name in blocks or [""]:
        if name in modules:
            # Compile the method and do not wrap the module: names stay as they are, and hooks
            # (shards) stay outside.
            modules[name].forward = torch.compile(modules[name].forward)

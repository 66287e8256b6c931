"""The blocks of a model: the units in which it is sharded, computed again, and cut into stages.

Blocks are the children of one ``nn.Sequential`` or ``nn.ModuleList``, such as a transformer's layers.
"""

from collections.abc import Sequence

from torch import nn

from raysm.errors import InvalidRequest

__all__ = ["Blocks", "block_names", "container_of_blocks"]

Blocks = str | Sequence[str] | None
"""The container's name, or the names of the modules at which stages begin; None finds the container by itself."""


def container_of_blocks(model: nn.Module, blocks: Blocks = None) -> str | None:
    """Return the name of the module whose children are the blocks; "" is the model itself, None if there is none.

    Found by itself, it is the model, if that is a Sequential; else of all Sequentials and ModuleLists the one with
    the most parameters.

    Raises:
        InvalidRequest: ``blocks`` names no container.
    """
    containers: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        # One child is no row of blocks: many models wrap a single layer in a Sequential.
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
    # By parameters: heads and embeddings stand in containers, too, but the layers of a transformer outweigh them.
    sizes = {name: sum(parameter.numel() for parameter in module.parameters()) for name, module in containers.items()}
    return max(containers, key=lambda name: sizes[name])


def block_names(model: nn.Module, blocks: Blocks = None) -> list[str]:
    """Return the names of the blocks, in their order; [] if the model has none.

    Raises:
        InvalidRequest: ``blocks`` names no container.
    """
    container = container_of_blocks(model, blocks)
    if container is None:
        return []
    # The model itself may be the container; its name is empty.
    prefix = f"{container}." if container else ""
    return [prefix + name for name, _ in model.get_submodule(container).named_children()]

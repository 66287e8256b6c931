"""An optimizer follows its parameters when a model is cut: shards replace them, and stages of other ranks go."""

from collections.abc import Iterable
from typing import TypeAlias

from torch import nn
from torch.optim import Optimizer

from raysm.errors import InvalidRequest

__all__ = ["Groups", "check_placed", "names_of_groups", "rebind"]

Groups: TypeAlias = list[list[tuple[str, ...]]]
"""For each parameter of each group of an optimizer all names that it has in the model: several, if it is shared."""


def names_of_groups(optimizer: Optimizer, model: nn.Module) -> Groups:
    """Return the names of each group's parameters.

    Raises:
        InvalidRequest: The optimizer has one that is none of the model's.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise InvalidRequest(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is none of the model's; "
                    "make it from model.parameters(), after the last change of the model"
                )
    return [[tuple(names[id(parameter)]) for parameter in group["params"]] for group in optimizer.param_groups]


def check_placed(groups: Groups, placed: Iterable[str]) -> None:
    """Check that some rank gets each of the optimizer's parameters.

    Args:
        groups: What ``names_of_groups`` returned before the model was cut.
        placed: The names of the parameters of all ranks together.

    Raises:
        InvalidRequest: One would be on none, and so stay as it is for good.
    """
    # Of all stages: a parameter that this rank lacks is another's.
    all_names = set(placed)
    lost = [names[0] for group in groups for names in group if all_names.isdisjoint(names)]
    if lost:
        raise InvalidRequest(
            f"{', '.join(lost)} would not be trained: no worker's part of the model has them; leave them out of the "
            "optimizer, or cut the model elsewhere by blocks=…"
        )


def rebind(optimizer: Optimizer, groups: Groups, parts: nn.Module, *, mixed: bool) -> None:
    """Give each group the parameters of its names that this rank has.

    Args:
        optimizer: Not stepped yet.
        groups: What ``names_of_groups`` returned before the model was cut.
        parts: This rank's parameters by their original names.
        mixed: Whether some are cut over other ranks than others: such ones cannot be updated in one call for all.
    """
    by_name = dict(parts.named_parameters(remove_duplicate=False))
    for group, parameters in zip(optimizer.param_groups, groups, strict=True):
        # A stage may know a shared parameter by another of its names than the first.
        own_names = (next((name for name in names if name in by_name), None) for names in parameters)
        group["params"] = [by_name[name] for name in own_names if name is not None]
        # Tensors over different meshes in one call are an error of torch's, in the first step of the optimizer.
        if mixed and "foreach" in group:
            group["foreach"] = False
        if mixed and "fused" in group:
            group["fused"] = False

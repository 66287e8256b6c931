"""An optimizer follows its parameters when a model is cut: shards replace them, and stages of other ranks go."""

from torch import nn
from torch.optim import Optimizer

from raysm.errors import InvalidRequest

__all__ = ["names_of_groups", "rebind"]


def names_of_groups(optimizer: Optimizer, model: nn.Module) -> list[list[str]]:
    """Return the names of each group's parameters.

    Raises:
        InvalidRequest: The optimizer has one that is none of the model's.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise InvalidRequest(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is none of the model's; "
                    "make it from model.parameters(), after the last change of the model"
                )
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


def rebind(optimizer: Optimizer, groups: list[list[str]], parts: nn.Module, *, mixed: bool) -> None:
    """Give each group the parameters of its names that this rank has.

    Args:
        optimizer: Not stepped yet.
        groups: What ``names_of_groups`` returned before the model was cut.
        parts: This rank's parameters by their original names.
        mixed: Whether some are cut over other ranks than others: such ones cannot be updated in one call for all.
    """
    here = dict(parts.named_parameters())
    for group, names in zip(optimizer.param_groups, groups, strict=True):
        group["params"] = [here[name] for name in names if name in here]
        if mixed and "foreach" in group:
            group["foreach"] = False
        if mixed and "fused" in group:
            group["fused"] = False

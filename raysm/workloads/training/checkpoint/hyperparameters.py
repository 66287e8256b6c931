"""What the user's code asks an optimizer and a scheduler for, so that a training that goes on can say what it ignores.

What flows in are both as they are before the first step, when no scheduler has moved anything yet; what flows out are
numbers by name, which each checkpoint passes on to the next.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["read_hyperparameters", "find_overruled"]

HOW = frozenset({"params", "foreach", "fused", "capturable", "differentiable"})
"""Keys of a group that say how to compute, not what; ``prepare`` itself changes some of them."""


def read_hyperparameters(optimizer: Optimizer, scheduler: Any) -> dict[str, float]:
    """Return all hyperparameters that are numbers: ``0.lr``, ``1.betas[0]`` by group, ``scheduler.T_max``.

    Under a scheduler, ``lr`` is the rate that it was given.
    """
    numbers: dict[str, float] = {}
    for index, group in enumerate(optimizer.param_groups):
        values = {name: value for name, value in group.items() if name not in HOW}
        # A scheduler has moved lr already; what the user asked for is what it began with.
        values["lr"] = values.pop("initial_lr", values["lr"])
        numbers |= {
            f"{index}.{name}": number for name, value in values.items() for name, number in _numbers(name, value)
        }
    if scheduler is not None:
        # Lists are the rates of the groups, or the schedulers of a sequence.
        single = {name: value for name, value in scheduler.state_dict().items() if not isinstance(value, (list, tuple))}
        numbers |= {
            f"scheduler.{name}": number for name, value in single.items() for name, number in _numbers(name, value)
        }
    return numbers


def find_overruled(chosen: Mapping[str, float], resumed: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return name, what is asked for now, and what the checkpoint has in its place; alike groups once, by name."""
    # A set: groups that differ in nothing would repeat the same line for each.
    changed = {
        (name.partition(".")[2], number, resumed[name])
        for name, number in chosen.items()
        if name in resumed and resumed[name] != number
    }
    return sorted(changed)


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    match value:
        case torch.Tensor() if value.numel() == 1:
            yield from _numbers(name, value.item())
        case int() | float() if abs(value) < float("inf"):
            yield name, float(value)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _numbers(f"{name}[{index}]", item)

"""Which parameters an optimizer has a state of: those that have had a gradient, and no others.

What flows in are the entries of an optimizer in a checkpoint: ``state.<parameter>.<value>`` and
``param_groups.<parameter>.<hyperparameter>``. Torch makes a state of every parameter when a checkpoint is about to be
read, and cannot say afterwards that there was none: one that the model does not use, or not yet, has none.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

__all__ = ["forget_others", "readable"]

STATE, GROUPS = "state.", "param_groups."


def readable(entries: Mapping[str, Any], there: Iterable[str]) -> dict[str, Any]:
    """Return those of ``entries`` that a checkpoint with the entries ``there`` can be asked for.

    That is all but the state of parameters of which it has none. Where it has none of any parameter, that is another
    thing: it is another optimizer's.
    """
    parameters = _parameters(entries)
    stateful = _stateful(there, parameters)
    return {
        name: value
        for name, value in entries.items()
        if not (stateful and name.startswith(STATE)) or _parameter_of(name, parameters) in stateful
    }


def forget_others(optimizer: Optimizer, parts: nn.Module, entries: Collection[str]) -> None:
    """Leave ``optimizer`` an empty state of those parameters of ``parts`` that have none among ``entries``."""
    stateful = _stateful(entries, _parameters(entries))
    for name, parameter in parts.named_parameters():
        if parameter in optimizer.state and name not in stateful:
            optimizer.state[parameter] = {}


def _parameters(entries: Iterable[str]) -> set[str]:
    return {name.removeprefix(GROUPS).rpartition(".")[0] for name in entries if name.startswith(GROUPS)}


def _stateful(entries: Iterable[str], parameters: Collection[str]) -> set[str]:
    return {_parameter_of(name, parameters) for name in entries if name.startswith(STATE)}


def _parameter_of(entry: str, parameters: Collection[str]) -> str:
    """Return the parameter that the state is of, "" for one that is none of these; values may be nested."""
    name = entry.removeprefix(STATE)
    while name and name not in parameters:
        name = name.rpartition(".")[0]
    return name

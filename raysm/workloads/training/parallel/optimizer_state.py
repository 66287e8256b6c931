"""What an optimizer keeps of its parameters: most from a parameter's first gradient on, some from the beginning.

In a checkpoint these are the entries ``state.<parameter>.<value>`` and ``param_groups.<parameter>.<hyperparameter>``.
Torch makes a state of every parameter when a checkpoint is about to be read, and cannot say afterwards that there was
none: a parameter that the model does not use, or not yet, has none.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from raysm.errors import InvalidRequest

__all__ = ["forget_others", "is_stepped", "readable", "renew"]

STATE, GROUPS = "state.", "param_groups."


def is_stepped(optimizer: Optimizer) -> bool:
    """Whether it has been stepped: some (Adagrad) have a state from the beginning, whose ``step`` is 0."""
    # An optimizer without a count of steps that has a state has been stepped.
    return any(float(state.get("step", 1)) > 0 for state in optimizer.state.values() if state)


def renew(optimizer: Optimizer) -> None:
    """Let a state that the constructor made be one of the parameters as they are now, on their device and as cut.

    Raises:
        InvalidRequest: The constructor does not take what it says its defaults are.
    """
    if not optimizer.state:
        return
    try:
        # Made by its own constructor, since nobody else knows how the state of a foreign optimizer begins.
        anew = type(optimizer)([dict(group) for group in optimizer.param_groups], **optimizer.defaults)
    except TypeError as error:
        raise InvalidRequest(
            f"the optimizer {type(optimizer).__name__} makes its state when it is made, and cannot be made again for"
            f" parameters that are cut or moved: {error}; let it make its state in its first step"
        ) from error
    optimizer.state = anew.state


def readable(entries: Mapping[str, Any], there: Iterable[str]) -> dict[str, Any]:
    """Return those of ``entries`` that a checkpoint with the entries ``there`` can be asked for.

    That is all but the state of parameters of which it has none. Where it has none of any parameter, that is another
    thing: it is another optimizer's.
    """
    parameters = _parameters(entries)
    # From the checkpoint's names alone: the state that torch would make here must not count.
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
            # Empty, not absent: torch fills what is absent, and a first step after it would differ.
            optimizer.state[parameter] = {}


def _parameters(entries: Iterable[str]) -> set[str]:
    return {name.removeprefix(GROUPS).rpartition(".")[0] for name in entries if name.startswith(GROUPS)}


def _stateful(entries: Iterable[str], parameters: Collection[str]) -> set[str]:
    return {_parameter_of(name, parameters) for name in entries if name.startswith(STATE)}


def _parameter_of(entry: str, parameters: Collection[str]) -> str:
    """Return the parameter that the state is of, "" for one that is none of these; values may be nested."""
    name = entry.removeprefix(STATE)
    # Names of parameters have dots, and so have names of nested values: the longest that is known is it.
    while name and name not in parameters:
        name = name.rpartition(".")[0]
    return name

"""What an optimizer keeps of its parameters: most from a parameter's first gradient on, some from the beginning.

In a checkpoint these are the entries ``state.<parameter>.<value>`` and ``param_groups.<parameter>.<hyperparameter>``.
Torch goes by what is trained: it makes a state of each such parameter when a checkpoint is about to be read, and reads
none of a frozen one. But one that the model does not use, or not yet, has none, and one that was frozen later, will be
trained later, or whose optimizer makes it in the constructor, has one. So torch is told by the checkpoint.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer

from raysm.errors import InvalidRequest

__all__ = ["is_stepped", "readable", "renew", "stateful", "trained"]

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


def stateful(entries: Iterable[str]) -> set[str]:
    """Return the parameters of which a checkpoint with these ``entries`` of the optimizer has a state."""
    names = list(entries)
    parameters = {name.removeprefix(GROUPS).rpartition(".")[0] for name in names if name.startswith(GROUPS)}
    return {_parameter_of(name, parameters) for name in names if name.startswith(STATE)}


def readable(entries: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return ``entries`` without the states of other parameters than ``names``."""
    return {name: value for name, value in entries.items() if not name.startswith(STATE) or _parameter_of(name, names)}


@contextmanager
def trained(parts: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Let exactly the parameters ``names`` of ``parts`` be trained meanwhile: those of which torch has states."""
    before = {parameter: parameter.requires_grad for parameter in parts.parameters()}
    try:
        for name, parameter in parts.named_parameters():
            parameter.requires_grad = name in names
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad = required


def _parameter_of(entry: str, parameters: Collection[str]) -> str:
    """Return the parameter that the state is of, "" for one that is none of these; values may be nested."""
    name = entry.removeprefix(STATE)
    # Names of parameters have dots, and so have names of nested values: the longest that is known is it.
    while name and name not in parameters:
        name = name.rpartition(".")[0]
    return name

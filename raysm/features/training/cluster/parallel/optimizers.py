"""The user's optimizer over the parameters of a rank, and its state in checkpoints.

A rank has these parameters after the model was cut. Entries are ``state.<parameter>.<value>`` and
``param_groups.<parameter>.<hyperparameter>``. Torch reads the states of all parameters that are
trained now, but unused, frozen and constructor-made states differ: the checkpoint decides.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import nn
from torch.optim import Optimizer

from raysm.errors import InvalidRequest

STATE = "state."
GROUPS = "param_groups."


def is_stepped(optimizer: Optimizer) -> bool:
    """Return whether the optimizer has made a step.

    Its counts of steps say so: some optimizers (Adagrad) have a state from the beginning, whose
    ``step`` is 0.
    """
    # An optimizer without a count of steps that has a state has been stepped.
    return any(float(state.get("step", 1)) > 0 for state in optimizer.state.values() if state)


def renew(optimizer: Optimizer) -> None:
    """Recreate the state that the optimizer's constructor made (Adagrad).

    The new state fits the parameters as they are now.
    """
    if not optimizer.state:
        return
    try:
        # Only its own constructor knows how the state of a foreign optimizer begins.
        anew = type(optimizer)(
            [dict(group) for group in optimizer.param_groups], **optimizer.defaults
        )
    except TypeError as error:
        raise InvalidRequest(
            f"the optimizer {type(optimizer).__name__} makes its state when it is made, and cannot "
            f"be made again for parameters that are cut or moved: {error}; let it make its state "
            "in its first step"
        ) from error
    optimizer.state = anew.state


def stateful(entries: Iterable[str]) -> set[str]:
    names = list(entries)
    parameters = {
        name.removeprefix(GROUPS).rpartition(".")[0] for name in names if name.startswith(GROUPS)
    }
    return {_parameter_of(name, parameters) for name in names if name.startswith(STATE)}


def readable(entries: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in entries.items()
        if not name.startswith(STATE) or _parameter_of(name, names)
    }


@contextmanager
def trained(parts: nn.Module, names: Collection[str]) -> Iterator[None]:
    before = {parameter: parameter.requires_grad for parameter in parts.parameters()}
    try:
        for name, parameter in parts.named_parameters():
            parameter.requires_grad = name in names
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad = required


def _parameter_of(entry: str, parameters: Collection[str]) -> str:
    """Return the parameter of a state's entry, or "" for other entries; values may be nested."""
    name = entry.removeprefix(STATE)
    # Names of parameters and of nested values have dots: take the longest known name.
    while name and name not in parameters:
        name = name.rpartition(".")[0]
    return name


Groups: TypeAlias = list[list[tuple[str, ...]]]
"""All names in the model of each parameter of each group of an optimizer; a shared parameter has
several."""


def names_of_groups(optimizer: Optimizer, model: nn.Module) -> Groups:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise InvalidRequest(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that the "
                    "model does not have; make it from model.parameters(), after the last change "
                    "of the model"
                )
    return [
        [tuple(names[id(parameter)]) for parameter in group["params"]]
        for group in optimizer.param_groups
    ]


def check_placed(groups: Groups, placed: Iterable[str]) -> None:
    """Check that some rank gets each of the optimizer's parameters.

    ``placed`` has the names of all ranks together.
    """
    # The names of all stages, because another rank has parameters that this one lacks.
    all_names = set(placed)
    lost = [names[0] for group in groups for names in group if all_names.isdisjoint(names)]
    if lost:
        raise InvalidRequest(
            f"{', '.join(lost)} would not be trained: no worker's part of the model has them; "
            "leave them out of the optimizer, or cut the model elsewhere by blocks=…"
        )


def rebind(optimizer: Optimizer, groups: Groups, parts: nn.Module, *, mixed: bool) -> None:
    """Give each group its parameters on this rank; ``mixed``: they are cut over different ranks."""
    by_name = dict(parts.named_parameters(remove_duplicate=False))
    for group, parameters in zip(optimizer.param_groups, groups, strict=True):
        # A stage may know a shared parameter by one of its later names.
        own_names = (
            next((name for name in names if name in by_name), None) for names in parameters
        )
        group["params"] = [by_name[name] for name in own_names if name is not None]
        # Tensors over different meshes in one call are an error of torch's, in the first step of
        # the optimizer.
        if mixed and "foreach" in group:
            group["foreach"] = False
        if mixed and "fused" in group:
            group["fused"] = False

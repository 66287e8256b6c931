"""Weights that several stages of a pipeline share: each worker has a copy, and all get the sum of their gradients.

All copies begin with the same weights, and an optimizer makes the same step of the same gradients: the copies stay
equal to the last bit, as one parameter would be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.degrees import Layout
from raysm.workloads.training.parallel.stages import Stages


@dataclass(frozen=True, kw_only=True, slots=True)
class Tie:
    """A parameter of several stages."""

    names: tuple[str, ...]
    """All its names in the model, in order; checkpoints know its optimizer's state by the first."""
    stages: tuple[int, ...]
    """The stages that compute with it, in order; at least two."""

    def places(self, pipeline: int) -> tuple[int, ...]:
        """Return the places in a pipeline of this many workers that have it."""
        return tuple(sorted({number % pipeline for number in self.stages}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Copies:
    """Parameters of this worker that other workers of its pipeline also have."""

    parameters: tuple[nn.Parameter, ...]
    """In the same order on all of these workers."""
    group: dist.ProcessGroup
    is_first: bool
    """This worker counts the parameters wherever each may count only once."""


def find_ties(stages: Stages) -> list[Tie]:
    """Return the parameters that several stages have, in the order of the model."""
    # Parameters are compared by identity, because a tied one has several names, often another one in each stage.
    homes: dict[int, list[int]] = {}
    for number in range(len(stages)):
        for parameter in stages.module(number).parameters():
            homes.setdefault(id(parameter), []).append(number)
    names: dict[int, list[str]] = {}
    for name, parameter in stages.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [
        Tie(names=tuple(names[parameter]), stages=tuple(homes[parameter]))
        for parameter in names
        if len(homes.get(parameter, ())) > 1
    ]


def check_ties(ties: Iterable[Tie], layout: Layout, cut: Iterable[str]) -> None:
    """Check that every worker can keep its copies as the others keep theirs; ``cut`` names modules with cut tensors."""
    cut_modules = set(cut)
    for tie in ties:
        shown = " = ".join(tie.names)
        where = " and ".join(str(number + 1) for number in tie.stages)
        # FSDP shards each stage's parameters separately: the copies would become two parameters.
        if layout.shard > 1 and len(tie.places(layout.pipeline)) < len(tie.stages):
            raise InvalidRequest(
                f"stages {where} share the weights {shown}, and two of them are one worker's, which cannot shard them"
                " twice: leave out shard, or schedule='interleaved'; or cut elsewhere by blocks=[…]"
            )
        if cut_modules & {name.rpartition(".")[0] for name in tie.names}:
            raise InvalidRequest(
                f"stages {where} share the weights {shown}, which plan cuts over the workers of a tensor group: leave"
                " their modules out of it"
            )


def copies_here(ties: Sequence[Tie], parts: nn.Module, layout: Layout, rank: int) -> tuple[Copies, ...]:
    """Return this worker's copies; every rank must call it, since all of them make each group."""
    params = dict(parts.named_parameters(remove_duplicate=False))
    # One group, and so one message, for all parameters that the same workers share.
    by_places: dict[tuple[int, ...], list[Tie]] = {}
    for tie in ties:
        by_places.setdefault(tie.places(layout.pipeline), []).append(tie)
    copies = []
    for places, tied in by_places.items():
        # Two stages of one worker have the very same parameter, whose gradients add up by themselves.
        if len(places) == 1:
            continue
        for pipeline in layout.groups("pipeline"):
            ranks = [pipeline[place] for place in places]
            group = dist.new_group(ranks)
            if rank in ranks:
                copies.append(
                    Copies(
                        parameters=tuple(params[tie.names[0]] for tie in tied), group=group, is_first=rank == ranks[0]
                    )
                )
    return tuple(copies)

"""Cut a model into the stages of a pipeline, at the boundaries of its blocks.

``torch.fx`` traces the model's forward with its blocks as opaque leaves, so a block may contain any
code. Stages have the model's own parameters under their original names, and pass values that skip
over stages from stage to stage.
"""

import functools
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import fx, nn
from torch.nn.modules.batchnorm import _NormBase

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.degrees import Layout
from raysm.features.training.cluster.parallel.blocks import Blocks, block_names


def balance_stages(costs: Sequence[float], stages: int) -> list[int]:
    """Cut blocks into consecutive stages; return the index of each stage's first block.

    The cost of the most expensive stage is the lowest possible: the classic linear partition by
    dynamic programming.
    """
    count = len(costs)
    if count < stages:
        raise InvalidRequest(
            f"{stages} stages need as many blocks, got {count}; lower pipeline or "
            "stages_per_worker, or split blocks"
        )
    until = [0.0, *accumulate(costs)]

    @functools.cache
    def best(stage: int, stop: int) -> tuple[float, int]:
        """Return the highest cost of stages, and where the last stage begins.

        The blocks before ``stop`` are cut into ``stage`` stages.
        """
        if stage == 1:
            return until[stop], 0
        # From stage - 1 on: each of the stages before needs a block of its own.
        return min(
            (max(best(stage - 1, start)[0], until[stop] - until[start]), start)
            for start in range(stage - 1, stop)
        )

    starts = [count]
    for stage in range(stages, 0, -1):
        starts.insert(0, best(stage, starts[0])[1])
    return starts[:-1]


class _Tracer(fx.Tracer):
    def __init__(self, opened: set[str]) -> None:
        super().__init__()
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._opened


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    model: nn.Module
    graph: fx.Graph
    starts: tuple[str, ...]

    def module(self, stage: int) -> fx.GraphModule:
        placed = _assign_stages(self.graph, self.starts)
        received = _handed_on(placed, stage - 1)
        handed_on = _handed_on(placed, stage)
        graph = fx.Graph()
        copies = {}
        for node in received:
            copies[node] = graph.placeholder(node.name)

        def copy(node: fx.Node) -> fx.Node:
            # Attributes are not passed on: each stage reads the ones that it needs.
            if node not in copies and node.op == "get_attr":
                copies[node] = graph.node_copy(node)
            return copies[node]

        for node, place in placed.items():
            if place != stage or node in copies or node.op == "get_attr":
                continue
            if node.op == "output":
                result = fx.node.map_arg(node.args[0], copy)
            else:
                copies[node] = graph.node_copy(node, copy)
        for name in _unused(self.model, placed, len(self))[stage]:
            graph.get_attr(name)  # so that the stage has it
        if not handed_on:
            graph.output(result)
        else:
            outputs = tuple(copies[node] for node in handed_on)
            graph.output(outputs if len(outputs) > 1 else outputs[0])
        return fx.GraphModule(self.model, graph, f"Stage{stage}")

    def __len__(self) -> int:
        return len(self.starts) + 1

    def modules(self) -> list[fx.GraphModule]:
        return [self.module(stage) for stage in range(len(self))]


def trace(model: nn.Module, boundaries: Sequence[str]) -> fx.Graph:
    """Trace just deep enough that each boundary is a node.

    The inputs of the graph are the parameters of forward without a default.
    """
    for name in boundaries:
        try:
            model.get_submodule(name)
        except AttributeError:
            raise InvalidRequest(f"blocks: {type(model).__name__} has no module {name!r}") from None
    opened = {container for name in boundaries for container in _containers(name)}
    parameters = inspect.signature(model.forward).parameters
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty
    }
    try:
        graph = _Tracer(opened).trace(model, concrete_args=defaults or None)
    except Exception as error:  # the user's forward runs on placeholders and may raise anything
        raise InvalidRequest(
            f"the forward of {type(model).__name__} cannot be cut into stages: {error}; outside of "
            "its blocks it must not decide on values of tensors: move such code into a module of "
            "its own, or make the model a Sequential"
        ) from error
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs[len(parameters) - len(defaults) :]:
        for check in list(node.users):  # that the argument has its default
            graph.erase_node(check)
        graph.erase_node(node)
    return graph


def partition_stages(model: nn.Module, stages: int, blocks: Blocks = None) -> Stages:
    """Cut a model, whose forward calls its blocks one after the other, into at least 2 stages.

    Stages are balanced by their parameters, unless ``blocks`` names the modules at which they
    begin.
    """
    if blocks is not None and not isinstance(blocks, str):
        starts = tuple(blocks)
        if len(starts) != stages - 1:
            raise InvalidRequest(
                f"blocks names {len(starts)} split points ({', '.join(starts)}), but {stages} "
                f"stages have {stages - 1}"
            )
        graph = trace(model, starts)
    else:
        names = block_names(model, blocks)
        if not names:
            raise InvalidRequest(
                f"{type(model).__name__} has no Sequential or ModuleList to cut into stages; name "
                "some by blocks=[…]"
            )
        graph = trace(model, names)
        starts = tuple(
            names[first] for first in balance_stages(_block_costs(model, graph, names), stages)[1:]
        )
    partition = Stages(model=model, graph=graph, starts=starts)
    owners: dict[int, int] = {}
    for number, stage in enumerate(partition.modules()):
        for name, module in stage.named_modules():
            if isinstance(module, nn.SyncBatchNorm):
                raise InvalidRequest(
                    f"{name!r} is a SyncBatchNorm, which waits for all workers, but only those of "
                    f"stage {number + 1} call it: use BatchNorm, which looks at one micro-batch, "
                    "or another norm"
                )
            is_kept = isinstance(module, _NormBase) and module.track_running_stats
            if is_kept and owners.setdefault(id(module), number) != number:
                raise InvalidRequest(
                    f"the norm {name!r} is in stage {owners[id(module)] + 1} and in stage "
                    f"{number + 1}, and both would keep running averages of their own; give each "
                    "block its own norm, or cut elsewhere by blocks=[…]"
                )
    return partition


def _assign_stages(graph: fx.Graph, starts: Sequence[str]) -> dict[fx.Node, int]:
    stage = 0
    placed = {}
    for node in graph.nodes:
        if (
            node.op == "call_module"
            and stage < len(starts)
            and _is_within(node.target, starts[stage])
        ):
            stage += 1
        placed[node] = stage
    # Silently fewer stages would leave a worker without work, and the schedule waiting for it.
    if stage < len(starts):
        raise InvalidRequest(
            f"the stage that begins at {starts[stage]!r} is never reached: the model's forward "
            f"must call the modules {', '.join(starts)} in this order"
        )
    return placed


def _handed_on(placed: dict[fx.Node, int], stage: int) -> list[fx.Node]:
    """Return the values that ``stage`` returns to the next stage.

    These are the values of this stage and of earlier ones that later stages need. Stage -1 passes
    the model's inputs on, and the last stage passes nothing on.
    """
    if stage < 0:
        return [node for node in placed if node.op == "placeholder"]
    known = [node for node, place in placed.items() if place <= stage and node.op != "get_attr"]
    values = [node for node in known if any(placed[user] > stage for user in node.users)]
    for node in values:
        # Torch's stages send tensors of known shapes; a number would be a constant, and wrong for a
        # smaller batch.
        if _is_size(node):
            raise InvalidRequest(
                f"the model takes a size ({node.name}) before stage {stage + 2} and uses it there, "
                "but stages hand on tensors only; take the size again from a tensor where it is "
                "needed"
            )
    return values


def _unused(model: nn.Module, placed: dict[fx.Node, int], stages: int) -> list[list[str]]:
    """Return for each stage the names of tensors that no stage uses, but that checkpoints have.

    A second name of a tensor goes with the first; what forward never uses goes with the last stage.
    """
    places: dict[str, int] = {}
    for node, place in placed.items():
        if node.op == "call_module":
            places[str(node.target)] = place
        elif node.op == "get_attr":
            places |= {str(node.target): placed[user] for user in node.users}
    tensors = {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if torch.is_tensor(tensor)
    }
    used = {
        name: places[prefix]
        for name in tensors
        for prefix in (*_containers(name), name)
        if prefix in places
    }
    # Tensors are compared by identity, because tied weights have two names and one home.
    homes = {id(tensors[name]): place for name, place in used.items()}
    unused: list[list[str]] = [[] for _ in range(stages)]
    for name, tensor in tensors.items():
        if name not in used:
            unused[homes.get(id(tensor), stages - 1)].append(name)
    return unused


def _is_size(node: fx.Node) -> bool:
    if node.op == "call_method" and node.target in ("size", "dim", "numel"):
        return True
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in ("shape", "ndim", "dtype", "device")
    if node.op == "call_function" and getattr(node.target, "__module__", "") == "_operator":
        return any(isinstance(argument, fx.Node) and _is_size(argument) for argument in node.args)
    return False


def _containers(name: str) -> list[str]:
    """Return the names of the modules around the module ``name``: for a.b.c they are a and a.b."""
    return [name[:dot] for dot, sign in enumerate(name) if sign == "."]


def _is_within(name: Any, block: str) -> bool:
    return name == block or str(name).startswith(f"{block}.")


def _block_costs(model: nn.Module, graph: fx.Graph, names: Sequence[str]) -> list[float]:
    """Return the parameters of each block and of the modules that follow it.

    The first block also has the parameters of the modules before it.
    """
    costs = [0.0] * len(names)
    block = 0
    for node in graph.nodes:
        if node.op == "call_module":
            if node.target in names:
                block = names.index(str(node.target))
            costs[block] += sum(
                parameter.numel()
                for parameter in model.get_submodule(str(node.target)).parameters()
            )
    return costs


@dataclass(frozen=True, kw_only=True, slots=True)
class Tie:
    names: tuple[str, ...]
    """All its names in the model, in order; checkpoints know its optimizer's state by the first."""
    stages: tuple[int, ...]
    """The stages that compute with it, in order; at least two."""

    def places(self, pipeline: int) -> tuple[int, ...]:
        return tuple(sorted({number % pipeline for number in self.stages}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Copies:
    """Parameters of this worker that other workers of its pipeline also have.

    Their order is the same on all of these workers.
    """

    parameters: tuple[nn.Parameter, ...]
    group: dist.ProcessGroup
    is_first: bool


def find_ties(stages: Stages) -> list[Tie]:
    # Parameters are compared by identity, because a tied one has several names, often another one
    # in each stage.
    homes: dict[int, list[int]] = {}
    for number, stage in enumerate(stages.modules()):
        for parameter in stage.parameters():
            homes.setdefault(id(parameter), []).append(number)
    names: dict[int, list[str]] = {}
    for name, parameter in stages.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    shared = [parameter for parameter in names if len(homes.get(parameter, ())) > 1]
    return [
        Tie(names=tuple(names[parameter]), stages=tuple(homes[parameter])) for parameter in shared
    ]


def check_ties(ties: Iterable[Tie], layout: Layout, cut: Iterable[str]) -> None:
    """Check that every worker can keep its copies equal to those of the other workers.

    ``cut`` has the names of the modules with cut tensors.
    """
    cut_modules = set(cut)
    for tie in ties:
        shown = " = ".join(tie.names)
        where = " and ".join(str(number + 1) for number in tie.stages)
        # FSDP shards each stage's parameters separately: the copies would become two parameters.
        if layout.shard > 1 and len(tie.places(layout.pipeline)) < len(tie.stages):
            raise InvalidRequest(
                f"stages {where} share the weights {shown}, and two of them are one worker's, "
                "which cannot shard them twice: leave out shard, or schedule='interleaved'; or cut "
                "elsewhere by blocks=[…]"
            )
        if cut_modules & {name.rpartition(".")[0] for name in tie.names}:
            raise InvalidRequest(
                f"stages {where} share the weights {shown}, which plan cuts over tensor workers: "
                "leave them out"
            )


def copies_here(
    ties: Sequence[Tie], parts: nn.Module, layout: Layout, rank: int
) -> tuple[Copies, ...]:
    """Return this worker's copies; every rank must call it, since all of them make each group."""
    params = dict(parts.named_parameters(remove_duplicate=False))
    # One group, and so one message, for all parameters that the same workers share.
    by_places: dict[tuple[int, ...], list[Tie]] = {}
    for tie in ties:
        by_places.setdefault(tie.places(layout.pipeline), []).append(tie)
    copies = []
    for places, tied in by_places.items():
        # Two stages of one worker have the very same parameter, whose gradients add up by
        # themselves.
        if len(places) == 1:
            continue
        for pipeline in layout.groups("pipeline"):
            ranks = [pipeline[place] for place in places]
            group = dist.new_group(ranks)
            if rank in ranks:
                own = tuple(params[tie.names[0]] for tie in tied)
                copies.append(Copies(parameters=own, group=group, is_first=rank == ranks[0]))
    return tuple(copies)

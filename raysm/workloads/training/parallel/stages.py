"""Cut a model into the stages of a pipeline, at the boundaries of its blocks.

``torch.fx`` traces the model's forward with its blocks as opaque leaves, so a block may contain any code. Stages have
the model's own parameters under their original names, and pass values that skip over stages from stage to stage.
"""

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _NormBase

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.blocks import Blocks, block_names


def balance_stages(costs: Sequence[float], stages: int) -> list[int]:
    """Cut blocks into consecutive stages; return the index of each stage's first block.

    The cost of the most expensive stage is the lowest possible. The algorithm is the classic linear partition: dynamic
    programming over (stages so far, blocks so far), O(stages x blocks^2).
    """
    count = len(costs)
    if count < stages:
        raise InvalidRequest(
            f"{stages} stages need at least as many blocks, but the model has {count}; lower pipeline or "
            "stages_per_worker, or name smaller blocks"
        )
    until = [0.0, *accumulate(costs)]
    # least[i]: cost of the most expensive stage when the first i blocks are cut into the stages so far.
    least = until[:]
    cuts: list[list[int]] = []
    for stage in range(2, stages + 1):
        best, at = [float("inf")] * (count + 1), [0] * (count + 1)
        for stop in range(stage, count + 1):
            # From stage - 1 on: each of the stages before needs a block of its own.
            for start in range(stage - 1, stop):
                cost = max(least[start], until[stop] - until[start])
                if cost < best[stop]:
                    best[stop], at[stop] = cost, start
        least = best
        cuts.append(at)
    starts, stop = [], count
    for at in reversed(cuts):
        stop = at[stop]
        starts.append(stop)
    return [0, *reversed(starts)]


MEASURED_RUNS = 3
"""The fastest run counts; the first one warms up."""


class _Tracer(fx.Tracer):
    def __init__(self, opened: set[str]) -> None:
        super().__init__()
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._opened


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """A traced model and where its stages begin."""

    model: nn.Module
    graph: fx.Graph
    starts: tuple[str, ...]
    """Name of the module at which each stage but the first begins."""
    shares: tuple[float, ...]
    """Each stage's share of the cost; empty if the user named the cuts."""

    def module(self, stage: int) -> fx.GraphModule:
        """Return one stage as a module, which takes what the stage before it returns."""
        placed = _placed(self.graph, self.starts)
        received, handed_on = _handed_on(placed, stage - 1), _handed_on(placed, stage)
        graph, copies = fx.Graph(), {}
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

    def parameter_names(self) -> set[str]:
        return {
            name
            for stage in range(len(self))
            for name, _ in self.module(stage).named_parameters(remove_duplicate=False)
        }

    def __len__(self) -> int:
        return len(self.starts) + 1


def trace(model: nn.Module, boundaries: Sequence[str]) -> fx.Graph:
    """Return the graph of the model's forward, traced just deep enough that each boundary is a node.

    Its inputs are the parameters of ``forward`` that have no default.
    """
    for name in boundaries:
        try:
            model.get_submodule(name)
        except AttributeError:
            raise InvalidRequest(f"blocks: {type(model).__name__} has no module {name!r}") from None
    opened = {container for name in boundaries for container in _containers(name)}
    parameters = inspect.signature(model.forward).parameters
    defaults = {
        name: parameter.default for name, parameter in parameters.items() if parameter.default is not parameter.empty
    }
    try:
        graph = _Tracer(opened).trace(model, concrete_args=defaults or None)
    except Exception as error:  # the user's forward runs on placeholders and may raise anything
        raise InvalidRequest(
            f"the forward of {type(model).__name__} cannot be cut into stages: {error}; outside of its blocks it must "
            "not decide on values of tensors: move such code into a module of its own, or make the model a Sequential"
        ) from error
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs[len(parameters) - len(defaults) :]:
        for check in list(node.users):  # that the argument has its default
            graph.erase_node(check)
        graph.erase_node(node)
    return graph


def partition_stages(
    model: nn.Module, stages: int, blocks: Blocks = None, *, example: Sequence[Any] | None = None
) -> Stages:
    """Cut a model into ``stages`` stages, at least 2.

    Args:
        model: Its forward calls its blocks one after the other.
        stages: Number of stages.
        blocks: The container of the blocks, or the names of the modules at which the second, third … stage begins.
        example: Inputs of the model, to balance by the time of each block; None balances by parameters.

    Raises:
        InvalidRequest: There are fewer blocks than stages, the model cannot be traced, two stages would share a
            running average, or a norm would wait for workers that never call it.
    """
    shares: tuple[float, ...] = ()
    if blocks is not None and not isinstance(blocks, str):
        starts = tuple(blocks)
        if len(starts) != stages - 1:
            raise InvalidRequest(
                f"blocks names {len(starts)} split points ({', '.join(starts)}), but {stages} stages have {stages - 1}"
            )
        graph = trace(model, starts)
    else:
        names = block_names(model, blocks)
        if not names:
            raise InvalidRequest(
                f"{type(model).__name__} has no Sequential or ModuleList to cut into stages; name split points by "
                "blocks=[…]"
            )
        graph = trace(model, names)
        # Costs include the modules before, between and after the blocks, such as a large head.
        costs = _block_costs(_leaf_costs(model, graph, example), names)
        firsts = balance_stages(costs, stages)
        starts = tuple(names[first] for first in firsts[1:])
        total = sum(costs) or 1.0
        shares = tuple(
            sum(costs[first:stop]) / total for first, stop in zip(firsts, [*firsts[1:], len(costs)], strict=True)
        )
    partition = Stages(model=model, graph=graph, starts=starts, shares=shares)
    _check_norms(partition)
    return partition


def _placed(graph: fx.Graph, starts: Sequence[str]) -> dict[fx.Node, int]:
    """Return the stage of each node; a stage begins where its first module is called."""
    stage, placed = 0, {}
    for node in graph.nodes:
        if node.op == "call_module" and stage < len(starts) and _is_within(node.target, starts[stage]):
            stage += 1
        placed[node] = stage
    # Silently fewer stages would leave a worker without work, and the schedule waiting for it.
    if stage < len(starts):
        raise InvalidRequest(
            f"the stage that begins at {starts[stage]!r} is never reached: the model's forward must call the modules "
            f"{', '.join(starts)} in this order"
        )
    return placed


def _handed_on(placed: dict[fx.Node, int], stage: int) -> list[fx.Node]:
    """Return the values that ``stage`` returns to the next one: what later stages need of it and of those before it.

    Stage -1 hands on the model's inputs, the last one nothing.
    """
    if stage < 0:
        return [node for node in placed if node.op == "placeholder"]
    values = [
        node
        for node, place in placed.items()
        if place <= stage and node.op != "get_attr" and any(placed[user] > stage for user in node.users)
    ]
    for node in values:
        # Torch's stages send tensors of known shapes; a number would be a constant, and wrong for a smaller batch.
        if _is_size(node):
            raise InvalidRequest(
                f"the model takes a size ({node.name}) before stage {stage + 2} and uses it there, but stages hand on "
                "tensors only; take the size again from a tensor where it is needed"
            )
    return values


def _unused(model: nn.Module, placed: dict[fx.Node, int], stages: int) -> list[list[str]]:
    """Return for each stage the names of tensors that no stage uses, but that belong to a checkpoint of the model.

    A second name of a tensor goes with the first; what forward never uses goes with the last stage.
    """
    places: dict[str, int] = {}
    for node, place in placed.items():
        if node.op == "call_module":
            places[str(node.target)] = place
        elif node.op == "get_attr":
            places |= {str(node.target): placed[user] for user in node.users}
    tensors = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if torch.is_tensor(tensor)}
    used = {name: places[prefix] for name in tensors for prefix in (*_containers(name), name) if prefix in places}
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


def _leaf_costs(model: nn.Module, graph: fx.Graph, example: Sequence[Any] | None) -> dict[fx.Node, float]:
    """Return what each called module costs: seconds of its forward, or the number of its parameters."""
    if example is None:
        return {
            node: float(sum(parameter.numel() for parameter in model.get_submodule(str(node.target)).parameters()))
            for node in graph.nodes
            if node.op == "call_module"
        }
    stopwatch = _Stopwatch(model, graph)
    modes = {module: module.training for module in model.modules()}
    model.eval()  # Neither dropout's random numbers nor batch norm's averages may change.
    try:
        with torch.no_grad():
            # The shortest of several counts: the first run allocates, and anything may delay the others.
            for _ in range(MEASURED_RUNS):
                stopwatch.run(*example)
    finally:
        for module, training in modes.items():
            module.training = training
    return stopwatch.seconds


class _Stopwatch(fx.Interpreter):
    """Runs a graph and keeps the shortest time of each module."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        traced = fx.GraphModule(model, graph)
        super().__init__(traced)
        # The graph module has a graph of its own, node by node the same.
        self._own = dict(zip(traced.graph.nodes, graph.nodes, strict=True))
        self.seconds: dict[fx.Node, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        start = time.perf_counter()
        value = super().run_node(n)
        if n.op == "call_module":
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            took, node = time.perf_counter() - start, self._own[n]
            self.seconds[node] = min(took, self.seconds.get(node, took))
        return value


def _block_costs(leaves: dict[fx.Node, float], names: Sequence[str]) -> list[float]:
    """Return the cost of each block with the modules that follow it; the first also has those before it."""
    costs, block = [0.0] * len(names), 0
    for node, cost in leaves.items():
        if node.target in names:
            block = names.index(str(node.target))
        costs[block] += cost
    return costs


def _check_norms(stages: Stages) -> None:
    owners: dict[int, int] = {}
    for number in range(len(stages)):
        for name, module in stages.module(number).named_modules():
            if isinstance(module, nn.SyncBatchNorm):
                raise InvalidRequest(
                    f"{name!r} is a SyncBatchNorm, which waits for all workers, but only those of stage {number + 1} "
                    "call it: use BatchNorm, which looks at one micro-batch, or another norm"
                )
            is_kept = isinstance(module, _NormBase) and module.track_running_stats
            if is_kept and owners.setdefault(id(module), number) != number:
                raise InvalidRequest(
                    f"the norm {name!r} is in stage {owners[id(module)] + 1} and in stage {number + 1}, each of which "
                    "would keep running averages of its own; give each block its own norm, or cut elsewhere by "
                    "blocks=[…]"
                )

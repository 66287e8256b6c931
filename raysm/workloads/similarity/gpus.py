"""Whether the cluster's GPUs compute: all of them, and they alone, or none; and what is to be said of it.

A GPU compares as many pairs a second as some hundred cores, so cores beside it would only make the end ragged.
"""

from collections.abc import Callable, Sequence

import ray
from ray.exceptions import RayError

from raysm.bootstrap.log import remark
from raysm.errors import InvalidRequest
from raysm.workloads.nodes import Node, ask_every_node, cluster_nodes
from raysm.workloads.similarity.engines import CUDA
from raysm.workloads.similarity.layouts import Layout
from raysm.workloads.similarity.modes import Mode
from raysm.workloads.similarity.runs import Report

__all__ = ["choose_engine", "reason_against", "say", "why_not_here"]

ASK_S = 300.0
"""How long an instance may take to say whether its GPU can be used: it imports torch and starts CUDA."""


def choose_engine(
    forced: str | None,
    against: str,
    columns: int,
    report: Report,
    nodes: Sequence[Node] | None = None,
    ask: Callable[[Sequence[Node], int], list[str]] | None = None,
) -> str | None:
    """Return what ``Context.engine`` is to be; what is to be said of the choice is logged, and added to the report.

    Args:
        forced: A word of the engine's name; None uses GPUs where there are any that can be used.
        against: Why GPUs do not compute what is asked for, or "".
        columns: Of the rows.
        report: Where notes go.
        nodes: The instances that are there; None asks Ray.
        ask: Returns why the GPU of each node cannot be used for that many columns, or ""; None asks each.

    Raises:
        InvalidRequest: GPUs are asked for, and cannot be used.
    """
    is_forced = CUDA.is_meant_by(forced)
    # An engine of the CPU is asked for: GPUs are left alone, though there may be some.
    if forced is not None and not is_forced:
        return forced
    alive = cluster_nodes() if nodes is None else nodes
    able = [node for node in alive if node.gpus]
    if not able:
        if is_forced:
            raise InvalidRequest(f"the engine {CUDA.name!r} is asked for, and no instance has a GPU")
        return None
    # The instances are asked last, and only where nothing else speaks against it: each imports torch to answer.
    reason = against or _why_not(able, columns, ask or _ask)
    if reason:
        if is_forced:
            raise InvalidRequest(f"the engine {CUDA.name!r} is asked for, and cannot be used: {reason}")
        say(report, f"warning: the GPUs are not used, the CPUs compute instead: {reason}")
        return None
    # A head that only coordinates is idle anyhow, and not named.
    idle = sorted(_host(node) for node in alive if node.cpus and not node.gpus)
    if idle:
        say(report, f"the GPUs alone compute, not the instances that have none: {', '.join(idle)}")
    return CUDA.name


def reason_against(mode: Mode, layout: Layout, *, sparse: bool) -> str:
    """Return why GPUs do not compute what is asked for, or ""."""
    by_elements = "sparse rows are compared by the columns that they share" if sparse else ""
    return mode.without_gpus or by_elements or layout.without_gpus


def _why_not(able: Sequence[Node], columns: int, ask: Callable[..., list[str]]) -> str:
    answers = ask(able, columns)
    return "; ".join(f"on {_host(node)}, {answer}" for node, answer in zip(able, answers, strict=True) if answer)


def _ask(nodes: Sequence[Node], columns: int) -> list[str]:
    answers = []
    # Each with a GPU of its own: Ray hides them from a task that asks for none.
    for reference in ask_every_node(why_not_here, columns, nodes=nodes, num_gpus=1, max_retries=1).values():
        try:
            answers.append(ray.get(reference, timeout=ASK_S))
        # A time limit that passed is one too. GPUs are but faster: silence must not fail a job that CPUs can do.
        except RayError as error:
            answers.append(f"nothing is heard of it ({type(error).__name__})")
    return answers


def why_not_here(columns: int) -> str:
    """Return why this process's GPU cannot compare rows of that many columns, or ""."""
    return CUDA.why_not_here(columns)


def say(report: Report, text: str) -> None:
    """Log what is to be said of how it is computed, and note it for the manifest."""
    remark(text)
    report.notes.append(text)


def _host(node: Node) -> str:
    return node.host or "an instance"

"""Ray's pending requests that can never be placed, and those that wait for what others hold.

A task or an actor asks for one bundle of resources, a placement group for several by a strategy
(https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html). Everything here is a pure
function of what the GCS reports, or of that and a clock.
"""

import collections
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from raysm.errors import InvalidRequest

Bundle = Mapping[str, float]
"""Resources by Ray's name, ``{"CPU": 64.0}``."""
Strategy = Literal["any", "STRICT_PACK", "STRICT_SPREAD"]
"""``any`` is PACK or SPREAD, which Ray follows only as far as it can."""

NAMED_AFTER_S = 10.0
"""An impossible request is named after this time: an instance may still join or restart Ray."""
WAITING_AFTER_S = 30.0
REPEATED_AFTER_S = 1800.0
MAX_WORK = 100_000
"""Limit of the search for a placement, in steps times nodes: about 0.2 s. A group whose search
takes longer is not called impossible."""
TOLERANCE = 1e-6
"""Ray counts in units of 1e-4, and a sum of floats differs by less."""
OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus"}
OF_A_GROUP = re.compile("_group_(?:[0-9]+_)?[0-9a-f]{16,}$")
"""The end of the name of a resource of a placement group, which exists once the group is placed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    bundles: Sequence[Bundle]
    strategy: Strategy = "any"
    count: int = 1
    """Number of equal requests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What ``ray_start`` reports to the head's bootstrap, as JSON."""

    unmet: Mapping[str, str] = field(default_factory=dict)
    """Requests that can never be placed, each with the resources of the instances."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Number of requests that could be placed if the others gave back what they hold."""
    free: str = ""
    """The free resources of the instances."""


def find_pending(
    nodes: Sequence[Bundle], free: Sequence[Bundle], requests: Iterable[Pending]
) -> Findings:
    """Sort pending requests by why they are not placed.

    Args:
        nodes: All resources of each instance.
        free: The free resources of the same instances.
        requests: What Ray has not placed.
    """
    unmet: dict[str, str] = {}
    waiting: collections.Counter[str] = collections.Counter()
    waiting_names: set[str] = set()
    for request in requests if nodes else ():
        names = {name for bundle in request.bundles for name in bundle}
        of_a_group = {name for name in names if OF_A_GROUP.search(name)}
        if not of_a_group and not can_place(nodes, request):
            unmet[_describe(request)] = _describe_nodes(nodes, names)
        # Else its placement group is not placed either, and named itself.
        elif of_a_group <= {name for node in nodes for name in node} and not can_place(
            free, request
        ):
            waiting[_describe(request)] += request.count
            waiting_names |= names - of_a_group
    return Findings(
        unmet=unmet, waiting=dict(waiting), free=_describe_free(nodes, free, waiting_names)
    )


def can_place(nodes: Sequence[Bundle], request: Pending) -> bool:
    """Return whether a request fits on ``nodes``; True also if the search would take long."""
    bundles = request.bundles
    if not _covers(_sum(nodes), _sum(bundles)):
        return False
    if len(bundles) == 1 or request.strategy == "STRICT_PACK":
        return any(_covers(node, _sum(bundles)) for node in nodes)
    if request.strategy == "STRICT_SPREAD":
        return _can_spread(nodes, bundles)
    return _can_divide(nodes, bundles)


def _can_spread(nodes: Sequence[Bundle], bundles: Sequence[Bundle]) -> bool:
    """Match each bundle with a node of its own, by augmenting paths."""
    if len(bundles) > len(nodes):
        return False
    bundle_of: dict[int, int] = {}
    # Most groups have equal bundles.
    kinds = {_text(bundle): bundle for bundle in bundles}
    nodes_of = {
        text: [number for number, node in enumerate(nodes) if _covers(node, bundle)]
        for text, bundle in kinds.items()
    }

    def match(bundle: int, tried: set[int]) -> bool:
        able = nodes_of[_text(bundles[bundle])]
        for number in able:
            if number not in bundle_of:
                bundle_of[number] = bundle
                return True
        for number in able:
            if number not in tried:
                tried.add(number)
                if match(bundle_of[number], tried):
                    bundle_of[number] = bundle
                    return True
        return False

    return all(match(bundle, set()) for bundle in range(len(bundles)))


def _can_divide(nodes: Sequence[Bundle], bundles: Sequence[Bundle]) -> bool:
    """Search for a node of each bundle, the largest first; nodes with equal rests count once."""
    if all(bundle == bundles[0] for bundle in bundles):
        return sum(_count_fits(node, bundles[0]) for node in nodes) >= len(bundles)
    ordered = sorted(bundles, key=lambda bundle: max(bundle.values(), default=0.0), reverse=True)
    names = sorted({name for bundle in bundles for name in bundle})
    start = tuple(sorted(tuple(node.get(name, 0.0) for name in names) for node in nodes))
    wants = [tuple(bundle.get(name, 0.0) for name in names) for bundle in ordered]
    failed: set[tuple[int, tuple[tuple[float, ...], ...]]] = set()
    stack = [(0, start)]
    for _ in range(MAX_WORK // len(nodes)):
        if not stack:
            return False
        number, rests = stack.pop()
        if number == len(wants):
            return True
        if (number, rests) in failed:
            continue
        failed.add((number, rests))
        want = wants[number]
        for rest in sorted(set(rests), reverse=True):
            if all(have + TOLERANCE >= need for have, need in zip(rest, want, strict=True)):
                others = list(rests)
                others.remove(rest)
                left = tuple(round(have - need, 4) for have, need in zip(rest, want, strict=True))
                stack.append((number + 1, tuple(sorted([*others, left]))))
    return True


def _count_fits(node: Bundle, bundle: Bundle) -> float:
    return min(
        (
            math.floor((node.get(name, 0.0) + TOLERANCE) / amount)
            for name, amount in bundle.items()
            if amount
        ),
        default=math.inf,
    )


def _covers(have: Bundle, want: Bundle) -> bool:
    return all(have.get(name, 0.0) + TOLERANCE >= amount for name, amount in want.items())


def _sum(bundles: Iterable[Bundle]) -> Bundle:
    total: collections.Counter[str] = collections.Counter()
    for bundle in bundles:
        total.update(bundle)
    return total


def _describe(request: Pending) -> str:
    bundles = request.bundles
    if len(bundles) == 1:
        # Ray lists each resource twice there: of the whole group and of one bundle.
        outside = {OF_A_GROUP.sub("", name): amount for name, amount in bundles[0].items()}
        outside.pop("bundle", None)
        inside = " inside a placement group" if outside.keys() != bundles[0].keys() else ""
        return f"{_text(outside)}{inside}"
    strategy = "" if request.strategy == "any" else f"{request.strategy}, "
    each = {_text(bundle) for bundle in bundles}
    of = f" of {each.pop()}" if len(each) == 1 else ""
    return (
        f"a placement group of {len(bundles)} bundles{of} ({strategy}{_text(_sum(bundles))} in all)"
    )


def _describe_nodes(nodes: Sequence[Bundle], names: Iterable[str]) -> str:
    return _count(_text({name: node.get(name, 0.0) for name in names}) for node in nodes)


def _describe_free(nodes: Sequence[Bundle], free: Sequence[Bundle], names: Iterable[str]) -> str:
    ordered = sorted(names)
    return _count(
        ", ".join(
            f"{OPTIONS.get(name, name)}={rest.get(name, 0.0):g} of {node.get(name, 0.0):g}"
            for name in ordered
        )
        for node, rest in zip(nodes, free, strict=True)
    )


def _count(texts: Iterable[str]) -> str:
    return ", ".join(
        f"{count} x ({text})" for text, count in sorted(collections.Counter(texts).items())
    )


def _text(bundle: Bundle) -> str:
    return ", ".join(
        f"{OPTIONS.get(name, name)}={amount:g}" for name, amount in sorted(bundle.items())
    )


class UnmetRequests:
    """Waiting times of unmet requests; decides when to log one and when to fail the job."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[str, float] = {}
        self._named: set[str] = set()

    def take(self, unmet: Mapping[str, str], now_s: float) -> list[str]:
        self._since = {request: self._since.get(request, now_s) for request in unmet}
        self._named &= unmet.keys()
        lines = []
        for request, since_s in self._since.items():
            waited_s = now_s - since_s
            what = (
                f"no instance can ever run the Ray request {request}; "
                f"the instances have {unmet[request]}"
            )
            if "placement group" in request:
                what = f"the instances can never hold {request}; they have {unmet[request]}"
            if waited_s >= self._limit_s:
                raise InvalidRequest(
                    f"{what}. It has been waiting for {waited_s:.0f} s: "
                    "ask for less, or for larger or more instances"
                )
            if waited_s >= NAMED_AFTER_S and request not in self._named:
                self._named.add(request)
                left_s = self._limit_s - waited_s
                fails = (
                    ""
                    if left_s == float("inf")
                    else f". The job fails in {left_s:.0f} s if it still waits then"
                )
                lines.append(f"warning: {what}{fails}")
        return lines


class WaitingRequests:
    """Waiting times of requests for resources that others hold; decides when to log them."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, int]] = {}
        self._named_s: float | None = None

    def take(self, waiting: Mapping[str, int], free: str, now_s: float) -> str | None:
        """Return a line if requests have waited for long and their number has not fallen."""
        since = {}
        for request, count in waiting.items():
            since_s, before = self._since.get(request, (now_s, count))
            since[request] = (now_s if count < before else since_s, count)
        self._since = since
        long = [
            request for request, (since_s, _) in since.items() if now_s - since_s >= WAITING_AFTER_S
        ]
        is_due = self._named_s is None or now_s - self._named_s >= REPEATED_AFTER_S
        if not long or not is_due:
            return None
        self._named_s = now_s
        waited_s = now_s - min(since[request][0] for request in long)
        named = ", ".join(f"{waiting[request]} x ({request})" for request in sorted(long))
        return (
            f"for {waited_s:.0f} s Ray requests have been waiting for resources that others hold: "
            f"{named}; free are {free}. If those others wait for them in turn, "
            "the job never ends: ask for less, or for more instances"
        )


Observe = Callable[[Findings, float], Sequence[str]]
"""(findings, seconds of a monotonic clock) -> the lines to log."""


def observe(unmet: UnmetRequests, waiting: WaitingRequests | None) -> Observe:
    def lines(findings: Findings, now_s: float) -> list[str]:
        found = unmet.take(findings.unmet, now_s)
        line = waiting.take(findings.waiting, findings.free, now_s) if waiting else None
        return [*found, line] if line else found

    return lines

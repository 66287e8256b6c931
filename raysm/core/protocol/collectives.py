"""The last collectives of each rank, as torch's flight recorder has them, and how ranks differ."""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COMPLETED = "completed"
DEFAULT_GROUP = "default_pg"
PENDING_SHOWN = 3
COMPLETED_SHOWN = 2
WAITS_S = 1.0
"""Ranks of a running program are compared at slightly different moments. So they are only compared
if one of them has waited for longer."""
SAME_SHAPES = frozenset({"all_reduce", "broadcast", "reduce"})
"""Collectives to which each rank brings the same shapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One call of a collective by one rank."""

    group: str
    """The process group: ``default_pg``, or its name and what torch says about it."""
    number: int
    """Counts the calls in this group from 1, equal on ranks that have made the same calls."""
    name: str
    """``all_reduce``, ``send 0->1``."""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    state: str = COMPLETED
    """``scheduled``, ``started`` or ``completed``; gloo does not say that one has started."""
    age_s: float = 0.0
    """Seconds since it was called."""
    is_p2p: bool = False
    """True for ``send`` and ``recv``, which have numbers of their own."""

    @property
    def call(self) -> str:
        """``all_reduce [4] Float``."""
        tensors = itertools.zip_longest(map(list, self.shapes), self.dtypes, fillvalue="")
        return f"{self.name} {', '.join(f'{shape} {dtype}' for shape, dtype in tensors)}".strip()


def parse_records(text: str, now_s: float) -> tuple[Collective, ...]:
    """Return the last collectives of each process group in the JSON of torch's recorders.

    Raises:
        ValueError, KeyError, TypeError: The text has another form.
    """
    groups: defaultdict[str, list[Collective]] = defaultdict(list)
    for dump in json.loads(text):
        for entry in sorted(dump.get("entries", ()), key=lambda entry: int(entry["record_id"])):
            collective = _parse_entry(entry, now_s)
            groups[collective.group].append(collective)
    return tuple(itertools.chain.from_iterable(map(_choose, groups.values())))


def _parse_entry(entry: Mapping[str, Any], now_s: float) -> Collective:
    name, description = entry["process_group"]
    backend, _, operation = entry["profiling_name"].rpartition(":")
    state = entry["state"]
    # gloo's are scheduled until they are retired; NCCL retires also those that time out.
    if entry["retired"] and backend == "gloo":
        state = COMPLETED
    is_p2p = bool(entry["is_p2p"])
    return Collective(
        group=_name_group(name, description),
        number=int(entry["p2p_seq_id" if is_p2p else "collective_seq_id"]),
        name=operation,
        shapes=tuple(tuple(map(int, shape)) for shape in entry["input_sizes"]),
        dtypes=tuple(map(str, entry["input_dtypes"])),
        state=state,
        age_s=max(0.0, now_s - entry["time_created_ns"] / 1e9),
        is_p2p=is_p2p,
    )


def _name_group(name: str, description: str) -> str:
    if description == DEFAULT_GROUP:
        return DEFAULT_GROUP
    return f"group {name}" if description in ("", "undefined") else f"group {name} ({description})"


def _choose(calls: Sequence[Collective]) -> list[Collective]:
    """Return the calls that show where a rank stands.

    These are the last ones that it has completed, the first ones after them, for which it waits,
    and its last call.
    """
    completed = [call for call in calls if call.state == COMPLETED]
    pending = [call for call in calls if call.state != COMPLETED]
    last = pending[PENDING_SHOWN:][-1:]
    return [*completed[-COMPLETED_SHOWN:], *pending[:PENDING_SHOWN], *last]


def lines_of_collectives(calls: Iterable[Collective]) -> Iterator[str]:
    for call in calls:
        state = call.state if call.state == COMPLETED else f"{call.state} for {call.age_s:.0f} s"
        yield f"{call.group} {call.number}: {call.call}, {state}"


def differences(ranks: Mapping[int, Sequence[Collective]]) -> Iterator[str]:
    """Yield in which collectives ranks differ, a sentence for each process group.

    Args:
        ranks: The last collectives of each rank.
    """
    names = {call.group for calls in ranks.values() for call in calls}
    for name in sorted(names, key=lambda name: (name != DEFAULT_GROUP, name)):
        calls = {
            rank: {call.number: call for call in each if call.group == name and not call.is_p2p}
            for rank, each in ranks.items()
        }
        # Each rank is in the default group; in another one those that have called something.
        calls = {rank: each for rank, each in calls.items() if each or name == DEFAULT_GROUP}
        if (found := _compare(name, calls)) is not None:
            yield found


def _compare(name: str, calls: Mapping[int, Mapping[int, Collective]]) -> str | None:
    each_call = [call for each in calls.values() for call in each.values()]
    if not any(call.state != COMPLETED and call.age_s > WAITS_S for call in each_call):
        return None
    for number in sorted({number for each in calls.values() for number in each}):
        variants = _by(
            {rank: _compared(each[number]) for rank, each in calls.items() if number in each}
        )
        if len(variants) > 1:
            parts = [f"{_name(ranks)} called {call}" for call, ranks in variants]
            return f"collective {number} of {name} differs: {'; '.join(parts)}"
    last = _by({rank: max(each, default=0) for rank, each in calls.items()})
    if len(last) < 2:
        return None
    parts = []
    for number, ranks in sorted(last, reverse=True):
        call = calls[ranks[0]].get(number)
        if call is None:
            parts.append(f"{_name(ranks)} called none")
        else:
            only = "only " if parts else ""
            parts.append(f"{_name(ranks)} called {only}{number}, {call.call}")
    return f"collectives of {name}: {'; '.join(parts)}"


def _compared(call: Collective) -> str:
    return call.call if call.name in SAME_SHAPES else call.name


def _by(values: Mapping[int, Any]) -> list[tuple[Any, list[int]]]:
    """Return each value with the ranks that have it, the value of most ranks first."""
    ranks: defaultdict[Any, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        ranks[value].append(rank)
    return sorted(ranks.items(), key=lambda item: -len(item[1]))


def _name(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {re.sub(r'[][]', '', str(list(ranks)))}"

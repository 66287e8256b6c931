"""Which rows share a job: rows that wait flow in, loads flow out, each for one job. Pure.

A job of a few minutes waits as long for its instances as it works, and Create takes one call a second: rows that are
small share a job, each a task of Ray in it. What goes to the market is one task that stands for all of them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from raysm.grid.records import TaskRecord
from raysm.grid.rules import Rules
from raysm.grid.task import MAX_RUNTIME_S, Task

__all__ = ["Load", "loads_of", "together"]

FORMING_S = 600
"""Seconds that a job may run beyond its rows: until its cluster is formed, and its files are where they belong."""

LONGEST_S = 432_000
"""Seconds that a job of several rows may run: five days, what an account is allowed unless it asks for more
(https://docs.aws.amazon.com/general/latest/gr/sagemaker.html). What is left then goes on in another job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What one job carries."""

    records: tuple[TaskRecord, ...]
    """The rows, the one that is worth most first."""
    task: Task
    """What stands for them on the market: of a row that has its job alone the row itself."""

    @property
    def head(self) -> TaskRecord:
        """The row whose key names the job."""
        return self.records[0]

    @property
    def attempts(self) -> int:
        """Number of the last attempt of any of them."""
        # Not the head's alone: of each row a later job has a greater number.
        return max(record.attempts for record in self.records)


def together(tasks: Sequence[Task]) -> Task:
    """Return the task that stands for rows that share a job.

    Args:
        tasks: At least one; those after the first differ from it in nothing that its place depends on.
    """
    first = tasks[0]
    expected = [task.expected_s for task in tasks if task.expected_s is not None]
    sizes = [task.input_bytes for task in tasks if task.input_bytes is not None]
    longest_s = max(task.max_runtime_s or MAX_RUNTIME_S for task in tasks)
    # One after the other, whatever room there is: a budget counts with the worst.
    runtime_s = FORMING_S + sum(task.max_runtime_s or MAX_RUNTIME_S for task in tasks)
    return replace(
        first,
        priority=max(task.priority for task in tasks),
        max_runtime_s=min(runtime_s, max(LONGEST_S, longest_s)),
        expected_s=sum(expected) if len(expected) == len(tasks) else None,
        # The same inputs, brought once.
        input_bytes=max(sizes) if len(sizes) == len(tasks) else None,
        rows=tuple(tasks),
    )


def loads_of(
    records: Iterable[TaskRecord], rules: Rules, siblings: Callable[[str], Sequence[TaskRecord]]
) -> Iterator[Load]:
    """Yield what jobs are to carry, in the order of the rows that head them.

    Args:
        records: Rows of one shape that wait, in the order of their worth.
        rules: Of the grid.
        siblings: Returns all rows that wait and belong to a pack that an earlier job has begun; none while it may not
            be taken up.
    """
    # Each group at the place of its first row: what is worth most does not wait until a job is full.
    groups: list[_Group] = []
    open_groups: dict[str, _Group] = {}
    packs: set[str] = set()
    for record in records:
        if record.pack:
            # As it was: its job has left a record of what is done, beside the files of those rows.
            if record.pack not in packs:
                packs.add(record.pack)
                groups.append(_Group(rules, list(siblings(record.pack))))
            continue
        if not rules.packs:
            groups.append(_Group(rules, [record], packs=False))
            continue
        alike = _alike(record.task)
        group = open_groups.get(alike)
        if group is None or not group.has_room(record):
            open_groups[alike] = group = _Group(rules, [])
            groups.append(group)
        group.records.append(record)
    yield from (group.load for group in groups if group.records)


class _Group:
    def __init__(self, rules: Rules, records: list[TaskRecord], *, packs: bool = True) -> None:
        self._rules, self.records, self._packs = rules, records, packs

    @property
    def load(self) -> Load:
        tasks = [record.task for record in self.records]
        return Load(records=tuple(self.records), task=together(tasks) if self._packs else tasks[0])

    def has_room(self, record: TaskRecord) -> bool:
        rules, minutes = self._rules, self._rules.pack_minutes
        # Two keys of one hash would share a folder.
        if len(self.records) >= rules.most_rows or record.task.key_hash in {
            each.task.key_hash for each in self.records
        }:
            return False
        work_s = sum(each.task.work for each in (*self.records, record))
        # A row that takes longer than a pack may has its job alone.
        return minutes is None or work_s <= minutes * 60


def _alike(task: Task) -> str:
    """Return what rows have to have in common beside their shape: a job has one set of channels, and of tags."""
    return json.dumps([dict(task.inputs), dict(task.manifests), dict(task.tags), task.checkpoint], sort_keys=True)

"""Columns of the table of jobs, and the text of their values."""

import difflib
from collections.abc import Iterable, Sequence

from raysm.client.costs.bill import dollars
from raysm.client.experiments.experiment import FACTS, Experiment, Value
from raysm.client.logs.rendering import metric_value
from raysm.client.units import duration
from raysm.errors import InvalidRequest

__all__ = [
    "check_columns",
    "differing",
    "format_seconds",
    "metric_columns",
    "order",
    "parameter_columns",
    "shown",
]

WHICH = ("last", "min", "max", "best")
"""Suffixes of a metric's name: ``loss:min``."""

SPACE = "space."
"""The prefix of a sweep's parameters in the sweep's own row, which has their ranges."""


def parameter_columns(jobs: Iterable[Experiment]) -> list[str]:
    """Return the names of all parameters, those that differ between jobs first."""
    rows = list(jobs)
    names = list(dict.fromkeys(name for row in rows for name in row.parameters))
    return sorted(names, key=lambda name: len({repr(row.parameters.get(name)) for row in rows}) <= 1)


def differing(jobs: Iterable[Experiment]) -> list[str]:
    """Return the names of the parameters in which jobs differ; for one job, all names."""
    rows = list(jobs)
    names = parameter_columns(rows)
    return [name for name in names if len(rows) == 1 or len({repr(row.parameters.get(name)) for row in rows}) > 1]


def metric_columns(jobs: Iterable[Experiment]) -> list[str]:
    """Return the names of all metrics, the most frequent first."""
    counts: dict[str, int] = {}
    for row in jobs:
        for name in row.metrics:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def check_columns(jobs: Sequence[Experiment], columns: Iterable[str]) -> None:
    """Check that each column exists: a misspelt one would look as if no job had a value.

    Raises:
        InvalidRequest: No job has one of them.
    """
    every = {*FACTS, *parameter_columns(jobs), *metric_columns(jobs)}
    for column in columns:
        name, colon, which = column.rpartition(":")
        if column in every or (colon and name in every and which in WHICH):
            continue
        if colon and name in every:
            raise InvalidRequest(f"no column {column!r}: a metric can be followed by {', '.join(WHICH)}")
        if f"{SPACE}{column}" in every:
            raise InvalidRequest(
                f"{column!r} is a parameter of a sweep's trials, and these jobs only have its range, {SPACE}{column}; "
                "add the trials: with_trials(), or raysm jobs --trials"
            )
        near = difflib.get_close_matches(column, every, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(every - {*FACTS})) or 'none'}"
        raise InvalidRequest(f"no job has the parameter or metric {column!r}; {hint}")


def order(jobs: Iterable[Experiment], column: str) -> list[Experiment]:
    """Return the jobs by a column, the lowest first, with ``-`` the highest first; no value and NaN come last."""
    name = column.removeprefix("-")
    rows = list(jobs)
    having = [row for row in rows if _has_order(row.value(name))]
    # Numbers come before texts.
    having.sort(key=lambda row: _rank(row.value(name)), reverse=column.startswith("-"))
    return having + [row for row in rows if not _has_order(row.value(name))]


def _has_order(value: Value) -> bool:
    # NaN is not equal to itself; one of them in the list would disturb the order of all others.
    return value is not None and value == value


def _rank(value: Value) -> tuple[bool, float, str]:
    is_text = isinstance(value, str)
    return is_text, 0.0 if is_text else float(value or 0), str(value) if is_text else ""


def shown(job: Experiment, column: str) -> str:
    """Return the text of a value; empty if there is none. An unknown cost is ``unknown``."""
    value = job.value(column)
    match column, value:
        case "cost_usd", _:
            return _cost(job)
        case "duration_s", _:
            return format_seconds(job.duration_s)
        case (("created_s" | "started_s" | "ended_s"), float()):
            at = {"created_s": job.created, "started_s": job.started, "ended_s": job.ended}[column]
            return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
        case "code", str():
            return value[:8]
        case _, None:
            return ""
        case _, float():
            return metric_value(value)
    return str(value)


def _cost(job: Experiment) -> str:
    if not job.is_billed:
        return "–"
    if job.cost_usd is None:
        return "unknown"
    return dollars(job.cost_usd) if job.status.is_terminal else f"about {dollars(job.cost_usd)} so far"


def format_seconds(seconds: float | None) -> str:
    """Return a duration as text; empty if it is not known."""
    return "" if seconds is None else duration(seconds)

"""``raysm.jobs``: the jobs that ran as a table, its columns, and the text of their values."""

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from raysm.core import features
from raysm.core.client.costs.bill import dollars
from raysm.core.client.job.description import COLORS, Status
from raysm.core.client.job.experiment import FACTS, Experiment, Value
from raysm.core.client.logs.rendering import marked_value, metric_value
from raysm.core.client.service import Service, connect
from raysm.core.protocol.names import natural
from raysm.core.protocol.terminal_text import visible
from raysm.core.request import Target
from raysm.core.request.durations import duration
from raysm.errors import InvalidRequest, used_by
from raysm.features.experiments.listing import Choice, experiments, parse_since, with_trials

WHICH = ("last", "min", "max", "best")
"""Suffixes of a metric's name: ``loss:min``."""

SPACE = "space."
"""The prefix of parameters in the row of a sweep, where they have ranges instead of values."""


def parameter_columns(jobs: Iterable[Experiment]) -> list[str]:
    rows = list(jobs)
    counts = Counter(name for row in rows for name in row.parameters)
    # Those that differ first, then those of most rows: of a sweep's many trials, before those of
    # the sweep itself.
    return sorted(
        counts,
        key=lambda name: (
            len({repr(row.parameters.get(name)) for row in rows}) <= 1,
            -counts[name],
        ),
    )


def differing_columns(jobs: Iterable[Experiment]) -> list[str]:
    rows = list(jobs)
    names = parameter_columns(rows)
    return [
        name
        for name in names
        if len(rows) == 1 or len({repr(row.parameters.get(name)) for row in rows}) > 1
    ]


def metric_columns(jobs: Iterable[Experiment]) -> list[str]:
    counts: dict[str, int] = {}
    for row in jobs:
        for name in row.metrics:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def check_columns(jobs: Sequence[Experiment], columns: Iterable[str]) -> None:
    """Check that each column exists: a misspelt one would look as if no job had a value."""
    every = {*FACTS, *parameter_columns(jobs), *metric_columns(jobs)}
    for column in columns:
        name, colon, which = column.rpartition(":")
        if column in every or (colon and name in every and which in WHICH):
            continue
        if f"{SPACE}{column}" in every:
            raise InvalidRequest(
                f"{column!r} is a parameter of a sweep's trials, and these jobs only have its "
                f"range, {SPACE}{column}; "
                "add the trials: with_trials(), or raysm jobs --trials"
            )
        names = ", ".join(sorted(every - {*FACTS})) or "none"
        raise InvalidRequest(
            f"no job has the parameter or metric {column!r}; there are {names}, and a metric can "
            "be followed by "
            f":{', :'.join(WHICH)}"
        )


def sort_rows(jobs: Iterable[Experiment], column: str) -> list[Experiment]:
    name = column.removeprefix("-")
    rows = list(jobs)
    missing = [row for row in rows if row.value(name) is None]
    # After the others in both directions, because a run that diverged is never the best.
    diverged = [row for row in rows if _is_not_finite(row.value(name))]
    sortable = [
        row for row in rows if row.value(name) is not None and not _is_not_finite(row.value(name))
    ]
    # Numbers come before texts.
    sortable.sort(key=lambda row: _rank(row.value(name)), reverse=column.startswith("-"))
    return sortable + diverged + missing


def _is_not_finite(value: Value) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _rank(value: Value) -> tuple[bool, float, Any]:
    if isinstance(value, str):
        # Trial digits-1/10 comes after digits-1/2.
        return True, 0.0, natural(value)
    return False, float(value or 0), natural("")


def format_value(job: Experiment, column: str) -> str:
    value = job.value(column)
    match column, value:
        case "cost_usd", _:
            return _cost(job)
        case "duration_s", _:
            return "" if job.duration_s is None else duration(job.duration_s)
        case (("created_s" | "started_s" | "ended_s"), float()):
            at = {"created_s": job.created, "started_s": job.started, "ended_s": job.ended}[column]
            return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
        case "code", str():
            return value[:8]
        case _, None:
            return ""
        case _, float() if column not in job.parameters:
            summary = job.metrics.get(column.removesuffix(":last"))
            return marked_value(value, "" if summary is None else summary.not_finite_from)
        case _, float():
            return metric_value(value)
    return str(value)


def _cost(job: Experiment) -> str:
    if not job.is_billed:
        return "–"
    if job.cost_usd is None:
        return "unknown"
    return (
        dollars(job.cost_usd) if job.status.is_terminal else f"about {dollars(job.cost_usd)} so far"
    )


MAX_COLUMNS = 6
MAX_ROWS = 50


class Jobs(list[Experiment]):
    """A list of ``Experiment``, the latest first.

    Notebooks show it as a table with parameters, metrics and cost.
    """

    def __init__(self, rows: Iterable[Experiment], service: Service) -> None:
        super().__init__(rows)
        self._service = service

    def sorted_by(self, column: str) -> "Jobs":
        """Sort by a parameter, a metric or a fact.

        Examples are ``"loss"``, ``"loss:best"``, ``"-accuracy"`` and ``"cost_usd"``.

        Args:
            column: The lowest value comes first, or the highest if ``-`` precedes the name; values
                that are NaN or infinite come after all others, and missing values last.

        Raises:
            InvalidRequest: No job has this column.
        """
        if self:
            check_columns(self, [column.removeprefix("-")])
        return Jobs(sort_rows(self, column), self._service)

    def with_trials(self) -> "Jobs":
        """Return the jobs, each sweep followed by its trials as rows.

        ``digits-1/3`` is trial 3 of ``digits-1``.

        A trial has its parameters and the last value of each metric. Its cost is part of its job's.
        A session is followed by its calls that reported metrics.
        """
        return Jobs(with_trials(self._service, self), self._service)

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each job.

        Its columns are ``params.lr``, ``metrics.loss`` and so on, and the facts.

        An unknown cost is NaN.

        Raises:
            MissingDependency: pandas is not installed.
        """
        with used_by("to_frame"):
            import pandas
        rows = [_flat(row) for row in self]
        # Named, so that an empty table has this column too.
        columns = list(dict.fromkeys(["name", *(key for row in rows for key in row)]))
        frame = pandas.DataFrame(rows, columns=columns)
        for name in ("created", "started", "ended"):
            if name in frame:
                # UTC: a table can have jobs of several regions.
                frame[name] = pandas.to_datetime(frame[name], unit="s", utc=True)
        return frame

    def __repr__(self) -> str:
        lines = [f"<{len(self)} jobs>" if self else "<no jobs>"]
        for row in self[:MAX_ROWS]:
            # Short, because a repr also appears in tracebacks.
            facts = (row.name, str(row.status), format_value(row, "duration_s"), _summarize(row))
            lines.append("  " + "  ".join(fact for fact in facts if fact))
        return visible("\n".join(lines + _more_line(self)))

    def _repr_html_(self) -> str:
        params = parameter_columns(self)[:MAX_COLUMNS]
        metrics = metric_columns(self)[:MAX_COLUMNS]
        columns = [*params, *metrics, "created_s", "duration_s", "cost_usd"]
        titles = ["job", "status", *params, *metrics, "sent", "took", "cost"]
        head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
        body = "".join(_html_row(row, columns) for row in self[:MAX_ROWS])
        rest = "".join(f"<p>{html.escape(line.strip())}</p>" for line in _more_line(self))
        return (
            f"<table cellpadding=5><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{rest}"
        )


def jobs(
    on: "Target | Service | None" = None,
    *,
    project: str | None = None,
    task: str | None = None,
    status: str | Sequence[str] | None = None,
    since: str | datetime | timedelta | None = None,
    contains: str | None = None,
    grid: str | None = None,
    limit: int = 100,
) -> Jobs:
    """Return the latest jobs as a table: status, parameters, metrics, duration and cost.

    A job that has ended is read once and then kept on this machine.

    Args:
        on: ``AWS(…)`` or ``Local(…)``; None is the embedded SageMaker of this machine.
        project: Only jobs of this project; None includes jobs that raysm did not submit.
        task: Only runs of this task.
        status: Only jobs of this status, or of these: ``"Completed"``, ``["Failed", "Stopped"]``.
        since: Only jobs submitted since then: ``"7d"``, ``"2026-11-01"``, a datetime or a
            timedelta.
        contains: Only jobs with this text in their names.
        grid: Only the last job of each row of this grid, with the row's parameters, placement and
            cost. They are read from the grid's file, and not from the service.
        limit: The maximum number of jobs.

    Raises:
        InvalidRequest: There is no such grid or status, ``since`` is not a time, or the limit is
            below 1.
        ServiceError: The service does not list its jobs.
    """
    service = connect(on)
    statuses = _statuses(status)
    begin = parse_since(since, datetime.now(UTC))
    choice = Choice(
        project=project, task=task, status=statuses, since=begin, contains=contains, limit=limit
    )
    if grid is not None:
        every: list[Experiment] = features.view("grid", "rows")(grid)
        rows = [row for row in every if choice.takes(row) and (contains or "") in row.name]
        return Jobs(rows[:limit], service)
    return Jobs(experiments(service, choice), service)


def _statuses(status: str | Sequence[str] | None) -> tuple[Status, ...]:
    names = [status] if isinstance(status, str) else list(status or ())
    # UNKNOWN is raysm's own; the service does not know it.
    statuses = [each for each in Status if each is not Status.UNKNOWN]
    chosen = [each for name in names for each in statuses if each.value.lower() == name.lower()]
    if len(chosen) < len(names):
        raise InvalidRequest(
            f"status is one of {', '.join(statuses)}, or several of them; got {status!r}"
        )
    return tuple(chosen)


def _flat(row: Experiment) -> dict[str, Any]:
    facts = {
        "name": row.name,
        "status": str(row.status),
        "project": row.project,
        "task": row.task,
        "workload": row.workload,
        "trial": row.trial,
        "created": row.created_s,
        "started": row.started_s,
        "ended": row.ended_s,
        "duration_s": row.duration_s,
        "cost_usd": row.cost_usd,
    }
    params = {f"params.{name}": value for name, value in row.parameters.items()}
    metrics = {f"metrics.{name}": summary.last for name, summary in row.metrics.items()}
    best = {f"metrics.{name}:best": row.value(f"{name}:best") for name in row.metrics}
    return (
        facts
        | params
        | metrics
        | {name: value for name, value in best.items() if value is not None}
    )


def _summarize(row: Experiment) -> str:
    params = [f"{name}={value}" for name, value in list(row.parameters.items())[:MAX_COLUMNS]]
    metrics = [f"{name} {format_value(row, name)}" for name in list(row.metrics)[:MAX_COLUMNS]]
    return " ".join(params + metrics)


def _html_row(row: Experiment, columns: Sequence[str]) -> str:
    color = COLORS.get(row.status, "#1565c0")
    # The failure reason is a tooltip.
    why = f' title="{html.escape(row.message)}"' if row.message else ""
    status = (
        f'<span style="color:{color};white-space:nowrap"{why}>● '
        f"{html.escape(str(row.status))}</span>"
    )
    cells = "".join(f"<td>{html.escape(format_value(row, column))}</td>" for column in columns)
    return f"<tr><td>{html.escape(row.name)}</td><td>{status}</td>{cells}</tr>"


def _more_line(rows: Sequence[Experiment]) -> list[str]:
    return (
        [f"  and {len(rows) - MAX_ROWS} more: to_frame() has all"] if len(rows) > MAX_ROWS else []
    )

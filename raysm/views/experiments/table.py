"""``raysm.jobs``: the jobs that ran as a table, and what can be done with one.

What flows in is which jobs, what flows out is a list of them that a notebook shows as a table.
"""

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from raysm.client.experiments.experiment import Experiment
from raysm.client.experiments.listing import Choice, cache_of, experiments, moment, with_trials
from raysm.client.experiments.reading import read_job
from raysm.client.job.description import Status
from raysm.client.job.text import COLORS
from raysm.client.service import Service, connect
from raysm.contract.job_api import api_of
from raysm.errors import InvalidRequest, MissingDependency
from raysm.grid.opening import opened
from raysm.request import Target
from raysm.views.experiments.columns import (
    check_columns,
    metric_columns,
    order,
    parameter_columns,
    shown,
    took,
)
from raysm.views.experiments.comparison import Comparison, comparison_of
from raysm.views.grid.experiments import experiments_of
from raysm.views.plots import Plot, plot_curves

__all__ = ["Jobs", "jobs"]

MOST_COLUMNS = 6
"""Parameters, and metrics, that a notebook's table shows at once; ``to_frame`` has all."""

MOST_ROWS = 50
"""Jobs that a notebook's table shows at once."""


class Jobs(list[Experiment]):
    """Jobs, the latest first, as a table: parameters, metrics, status, duration, cost. A list of ``Experiment``."""

    def __init__(self, rows: Iterable[Experiment], service: Service) -> None:
        """Hold ``rows``, jobs of ``service``."""
        super().__init__(rows)
        self._service = service

    def sorted_by(self, column: str) -> "Jobs":
        """Return them by a parameter, a metric or a fact: ``"loss"``, ``"loss:best"``, ``"-accuracy"``, ``"cost_usd"``.

        Args:
            column: The lowest first, with a ``-`` before it the highest first; jobs without a value come last.

        Raises:
            InvalidRequest: No job has it.
        """
        if self:
            check_columns(self, [column.removeprefix("-")])
        return Jobs(order(self, column), self._service)

    def with_trials(self) -> "Jobs":
        """Return them with the trials of each sweep behind it, as rows of their own: ``digits-1/3`` is its trial 3.

        A trial has its parameters, and of each metric what it reported last; its cost is its job's.
        """
        return Jobs(with_trials(self._service, self), self._service)

    def named(self, name: str) -> Experiment:
        """Return the one job of this name, or whose name ends so or begins so.

        Raises:
            InvalidRequest: There is none, or several.
        """
        # Ends before beginnings: names begin with the task and the time, and end with what tells them apart.
        for matches in (str.__eq__, str.endswith, str.startswith):
            rows = [row for row in self if matches(row.name, name)]
            if len(rows) == 1:
                return rows[0]
            if rows:
                raise InvalidRequest(f"{name!r} is several of these jobs: {', '.join(row.name for row in rows[:5])}")
        raise InvalidRequest(f"none of these {len(self)} jobs is named {name!r}; raysm.jobs(limit=…) has more")

    def compare(self, *names: str) -> Comparison:
        """Return in what jobs differ: parameters, metrics, code, versions, instances, cost.

        Args:
            names: Of the jobs, whole or their ends; two or more.

        Raises:
            InvalidRequest: There is no such job, or only one was named.
        """
        if len(names) < 2:
            raise InvalidRequest(f"compare takes two jobs or more, compare('digits-3', 'digits-7'); got {len(names)}")
        return comparison_of([self.named(name) for name in names])

    def plot(self, *names: str, log: bool = False, size: tuple[int, int] = (760, 320)) -> Plot:
        """Return the curves of metrics of all these jobs, in at most 200 points each.

        Args:
            names: ``"loss"``, or patterns; none is all.
            log: Whether the y axis is logarithmic.
            size: Width and height in pixels.

        Raises:
            InvalidRequest: No job has a metric of such a name.
        """
        # Of a trial the log has how it ended alone: its sweep's result has a picture of all of them.
        curves = {row.name: _curves(self._service, row) for row in self if row.metrics and row.trial is None}
        return plot_curves(curves, names, log=log, size=size)

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame``: a row for each job, columns ``params.lr``, ``metrics.loss``, and the facts.

        A cost that is not known is NaN, never 0.

        Raises:
            MissingDependency: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingDependency(f"to_frame needs {error.name}: python3 -m pip install pandas") from error
        rows = [_flat(row) for row in self]
        # Named here, so that a table without jobs has its column all the same.
        columns = list(dict.fromkeys(["name", *(key for row in rows for key in row)]))
        frame = pandas.DataFrame(rows, columns=columns)
        for name in ("created", "started", "ended"):
            if name in frame:
                # UTC, since jobs of several regions stand in one table.
                frame[name] = pandas.to_datetime(frame[name], unit="s", utc=True)
        return frame

    def __repr__(self) -> str:
        lines = [f"<{len(self)} jobs>" if self else "<no jobs>"]
        for row in self[:MOST_ROWS]:
            # Few facts: a repr also stands in tracebacks and in logs.
            facts = (row.name, str(row.status), took(row.duration_s), _words(row))
            lines.append("  " + "  ".join(fact for fact in facts if fact))
        return "\n".join(lines + _rest(self))

    def _repr_html_(self) -> str:
        params, metrics = parameter_columns(self)[:MOST_COLUMNS], metric_columns(self)[:MOST_COLUMNS]
        columns = [*params, *metrics, "created_s", "duration_s", "cost_usd"]
        titles = ["job", "status", *params, *metrics, "sent", "took", "cost"]
        head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
        body = "".join(_html_row(row, columns) for row in self[:MOST_ROWS])
        rest = "".join(f"<p>{html.escape(line.strip())}</p>" for line in _rest(self))
        return f"<table cellpadding=5><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


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
    """Return the latest jobs as a table, failed ones too: what ran, with which parameters, how well, for how much.

    What was read of a job that has ended is kept on this machine, so that it is read once.

    Args:
        on: ``AWS(…)`` or ``Local(…)``; None is the embedded SageMaker of this machine.
        project: Only those of this project; None is all, jobs of others too.
        task: Only runs of this task.
        status: Only those that are so: ``"Completed"``, ``["Failed", "Stopped"]``.
        since: Only those that were sent since then: ``"7d"``, ``"2026-11-01"``, a time, or how long ago.
        contains: Part of the name.
        grid: Only those of this grid: the last job of each row, in whichever region, with the row's parameters, its
            place and its dollars, from the grid's own file; no job is read for it.
        limit: At most so many.

    Raises:
        InvalidRequest: There is no such grid or status, ``since`` is no time, or the limit is below 1.
        ServiceError: The service does not list its jobs.
    """
    service = connect(on)
    choice = Choice(
        project=project,
        task=task,
        status=_statuses(status),
        since=moment(since, datetime.now(UTC)),
        contains=contains,
        limit=limit,
    )
    if grid is not None:
        with opened(grid) as store:
            rows = [row for row in experiments_of(store) if choice.takes(row) and (contains or "") in row.name]
        return Jobs(rows[:limit], service)
    return Jobs(experiments(service, choice), service)


def _statuses(status: str | Sequence[str] | None) -> tuple[Status, ...]:
    names = [] if status is None else [status] if isinstance(status, str) else list(status)
    # UNKNOWN is raysm's own word for what it does not know; the service lists nothing by it.
    statuses = [each for each in Status if each is not Status.UNKNOWN]
    chosen = [each for name in names for each in statuses if each.value.lower() == name.lower()]
    if len(chosen) < len(names):
        raise InvalidRequest(f"status is one of {', '.join(statuses)}, or several of them; got {status!r}")
    return tuple(chosen)


def _curves(service: Service, row: Experiment) -> Any:
    """Return a job's curves: those that are kept, or, of one that runs, as they are now."""
    cached = cache_of(service).curves(row.arn, row.metrics)
    if cached or row.ended_s is not None:
        return cached
    reading = read_job(service, api_of(row.kind), row.name)
    return {} if reading is None else reading.curves


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
    return facts | params | metrics | {name: value for name, value in best.items() if value is not None}


def _words(row: Experiment) -> str:
    params = [f"{name}={value}" for name, value in list(row.parameters.items())[:MOST_COLUMNS]]
    metrics = [f"{name} {shown(row, name)}" for name in list(row.metrics)[:MOST_COLUMNS]]
    return " ".join(params + metrics)


def _html_row(row: Experiment, columns: Sequence[str]) -> str:
    color = COLORS.get(row.status, "#1565c0")
    # Why it failed is there where it is looked for, and takes no room.
    why = f' title="{html.escape(row.message)}"' if row.message else ""
    status = f'<span style="color:{color};white-space:nowrap"{why}>● {html.escape(str(row.status))}</span>'
    cells = "".join(f"<td>{html.escape(shown(row, column))}</td>" for column in columns)
    return f"<tr><td>{html.escape(row.name)}</td><td>{status}</td>{cells}</tr>"


def _rest(rows: Sequence[Experiment]) -> list[str]:
    return [f"  and {len(rows) - MOST_ROWS} more: to_frame() has all"] if len(rows) > MOST_ROWS else []

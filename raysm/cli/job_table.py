"""The command ``raysm jobs``: the latest jobs, and, where it is asked for, what they were given and how well they did.

Alone it takes one call to list them. With ``--params``, ``--metrics``, ``--sort``, ``--project``, ``--task``,
``--status``, ``--since``, ``--grid`` or ``--trials`` it is the table of experiments, for which each job is read once.
"""

import fnmatch
import json
from collections.abc import Sequence

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.console import Console
from raysm.client.job.listing import Listed
from raysm.client.job.listing import jobs as list_jobs
from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.views.experiments.comparison import check_columns, differing, metric_columns, parameter_columns, shown
from raysm.views.experiments.table import Jobs, jobs

__all__ = ["print_jobs"]

EVERY = "*"
"""``--params`` without names."""
SHOWN_FACTS = ("created_s", "duration_s", "cost_usd")
"""Columns that the table of experiments always has, beside the name and the status."""
GAP = "  "
"""Between two columns."""


def print_jobs(arguments: Arguments, service: Service, console: Console) -> None:
    """Print the jobs that are asked for.

    Raises:
        InvalidRequest: The limit is below 1, or no job has a column that is asked for.
    """
    if arguments.limit < 1:
        raise InvalidRequest(f"--limit must be at least 1, got {arguments.limit}")
    choices = ("params", "metrics", "sort", "project", "task", "status", "since", "grid")
    if arguments.trials or any(getattr(arguments, name) is not None for name in choices):
        _experiments(arguments, service, console)
    else:
        _latest(arguments, service, console)


def _latest(arguments: Arguments, service: Service, console: Console) -> None:
    # One more than is shown tells whether there are more.
    listed = list_jobs(service, contains=arguments.contains, limit=arguments.limit + 1)
    _say_more(arguments, len(listed))
    listed = listed[: arguments.limit]
    if arguments.json:
        print(json.dumps([_as_json(job) for job in listed], indent=1))
        return
    if not listed:
        console.print("no jobs", highlight=False)
        return
    # Not how long it took: the list does not tell when a job began to run, and from its sending it may have waited.
    statuses = [f"{job.secondary}: {job.message}" if job.message else str(job.status) for job in listed]
    rows = [
        [job.name, f"{job.created:%Y-%m-%d %H:%M:%S}", _ended(job), status]
        for job, status in zip(listed, statuses, strict=True)
    ]
    # The status last and whole: it may be a sentence.
    head = ["name", "sent", "ended", "status"]
    for number, line in enumerate(_columns([head, *rows])):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)


def _ended(job: Listed) -> str:
    if job.ended is None:
        return ""
    # The year, of a job of one day the date too, stands there already, and a terminal has 80 columns.
    return f"{job.ended:%H:%M:%S}" if job.ended.date() == job.created.date() else f"{job.ended:%m-%d %H:%M:%S}"


def _as_json(job: Listed) -> dict[str, str | None]:
    return {
        "name": job.name,
        "status": str(job.status),
        "secondary_status": str(job.secondary),
        "message": job.message or None,
        "created": job.created.isoformat(),
        "ended": job.ended.isoformat() if job.ended else None,
    }


def _experiments(arguments: Arguments, service: Service, console: Console) -> None:
    chosen = jobs(
        service,
        project=arguments.project,
        task=arguments.task,
        status=arguments.status.split(",") if arguments.status else None,
        since=arguments.since,
        contains=arguments.contains,
        grid=arguments.grid,
        limit=arguments.limit + 1,
    )
    _say_more(arguments, len(chosen))
    # By time first: what is sorted are the latest jobs, and not those that happen to sort first of one more.
    rows = Jobs(chosen[: arguments.limit], service)
    if arguments.trials:
        rows = rows.with_trials()
    columns = [
        *_named(arguments.params, differing(rows) if arguments.params == EVERY else parameter_columns(rows)),
        *_named(arguments.metrics, metric_columns(rows)),
    ]
    if arguments.sort:
        sorted_by = arguments.sort.removeprefix("-")
        # A column by which the rows are ordered is shown.
        if sorted_by not in (*columns, *SHOWN_FACTS):
            columns.append(sorted_by)
    if rows:
        check_columns(rows, columns)
    if arguments.sort:
        rows = rows.sorted_by(arguments.sort)
    if arguments.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
    elif not rows:
        console.print("no such jobs", highlight=False)
    else:
        for line in _aligned(rows, columns):
            console.print(Text(line), soft_wrap=True)


def _named(chosen: str | None, names: Sequence[str]) -> list[str]:
    """Return the columns that a comma-separated list chooses: names, or patterns of those that there are."""
    columns: list[str] = []
    for name in (chosen or "").split(","):
        matching = [each for each in names if fnmatch.fnmatchcase(each, name)] if "*" in name else [name]
        columns += [each for each in matching if each and each not in columns]
    return columns


def _aligned(rows: Jobs, columns: Sequence[str]) -> list[str]:
    """Return the rows as text; whole, however wide: a terminal's width must not hide a column that was asked for."""
    table = [["name", "status", *columns, "sent", "took", "cost"]]
    table += [[row.name, str(row.status), *(shown(row, column) for column in (*columns, *SHOWN_FACTS))] for row in rows]
    return _columns(table)


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _say_more(arguments: Arguments, count: int) -> None:
    if count > arguments.limit:
        more = f"the latest {arguments.limit} of more jobs: raysm jobs --limit {2 * arguments.limit}"
        # stdout is for the list alone, which a program may read.
        Console(stderr=True).print(more, highlight=False)

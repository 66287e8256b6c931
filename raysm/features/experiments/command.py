"""The command ``raysm jobs``: list the latest jobs, on request with their parameters and metrics.

Without parameters, metrics or filters, it reads only the service's lists. Otherwise each job is
described once.
"""

import fnmatch
import json
import textwrap
from collections.abc import Sequence

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.cli.console import Console, aligned
from raysm.core.client.job.listing import Listed
from raysm.core.client.job.listing import jobs as list_jobs
from raysm.core.client.service import Service
from raysm.errors import InvalidRequest
from raysm.features.experiments.table import (
    Jobs,
    check_columns,
    differing_columns,
    format_value,
    jobs,
    metric_columns,
    parameter_columns,
)

EVERY = "*"
"""``--params`` without names."""
FACTS = {
    "name": "name",
    "status": "status",
    "created_s": "sent",
    "duration_s": "took",
    "cost_usd": "cost",
}
GAP = "  "
MAX_WIDTH = 120
MAX_CELL = 24


def run(arguments: Arguments, console: Console, service: Service | None = None) -> None:
    """List the jobs of ``service``; None connects to that of the arguments."""
    service = service or service_to_read(arguments)
    if arguments.limit < 1:
        raise InvalidRequest(f"--limit must be at least 1, got {arguments.limit}")
    choices = ("params", "metrics", "sort", "project", "task", "status", "since", "grid")
    if arguments.trials or any(getattr(arguments, name) is not None for name in choices):
        _print_table(arguments, service, console)
    else:
        _print_list(arguments, service, console)


def _print_list(arguments: Arguments, service: Service, console: Console) -> None:
    # One more than shown, to know whether there are more.
    listed = list_jobs(service, contains=arguments.contains, limit=arguments.limit + 1)
    _print_more(arguments, len(listed))
    listed = listed[: arguments.limit]
    if arguments.json:
        print(json.dumps([_as_json(job) for job in listed], indent=1))
        return
    if not listed:
        console.print("no jobs", highlight=False)
        return
    # No duration: the service's list does not have the start time of a job.
    rows = [[job.name, f"{job.created:%Y-%m-%d %H:%M:%S}", _ended(job), ""] for job in listed]
    head, *lines = aligned([["name", "sent", "ended", ""], *rows])
    indent = max(map(len, (head, *lines))) + len(GAP)
    console.print(Text(f"{head.ljust(indent)}status", style="bold"), soft_wrap=True)
    for line, job in zip(lines, listed, strict=True):
        status = f"{job.secondary}: {job.message}" if job.message else str(job.status)
        # A status may be a long sentence, which is wrapped.
        pieces = textwrap.wrap(status, max(40, MAX_WIDTH - indent)) or [""]
        text = f"\n{' ' * indent}".join(pieces)
        console.print(Text(f"{line.ljust(indent)}{text}"), soft_wrap=True)


def _ended(job: Listed) -> str:
    if job.ended is None:
        return ""
    return (
        f"{job.ended:%H:%M:%S}"
        if job.ended.date() == job.created.date()
        else f"{job.ended:%m-%d %H:%M:%S}"
    )


def _as_json(job: Listed) -> dict[str, str | None]:
    return {
        "name": job.name,
        "status": str(job.status),
        "secondary_status": str(job.secondary),
        "message": job.message or None,
        "created": job.created.isoformat(),
        "ended": job.ended.isoformat() if job.ended else None,
    }


def _print_table(arguments: Arguments, service: Service, console: Console) -> None:
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
    _print_more(arguments, len(chosen))
    # The extra job is dropped before sorting, because only the latest jobs are wanted.
    rows = Jobs(chosen[: arguments.limit], service)
    if arguments.trials:
        rows = rows.with_trials()
    if arguments.grid and arguments.metrics and not metric_columns(rows):
        raise InvalidRequest(
            f"the file of the grid {arguments.grid} has no metrics of its jobs",
            remedy=f"raysm jobs --contains {arguments.grid} --metrics reads them from the jobs",
        )
    columns = [
        *_select_columns(
            arguments.params,
            differing_columns(rows) if arguments.params == EVERY else parameter_columns(rows),
        ),
        *_select_columns(arguments.metrics, metric_columns(rows)),
    ]
    if arguments.sort:
        sorted_by = arguments.sort.removeprefix("-")
        columns = columns if sorted_by in (*columns, *FACTS) else [sorted_by, *columns]
    if rows:
        check_columns(rows, columns)
    if arguments.sort:
        rows = rows.sorted_by(arguments.sort)
    if arguments.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
    elif not rows:
        console.print("no such jobs", highlight=False)
    else:
        asked = {*(arguments.params or "").split(","), *(arguments.metrics or "").split(",")}
        asked |= {"name", "status", (arguments.sort or "").removeprefix("-")}
        order = list(dict.fromkeys(["name", "status", *columns, *FACTS]))
        cells = {
            name: [FACTS.get(name, name), *(_cell(format_value(row, name), name) for row in rows)]
            for name in order
        }
        widths = {column: max(map(len, texts)) + len(GAP) for column, texts in cells.items()}
        left = MAX_WIDTH - sum(widths[column] for column in order if column in asked)
        fitting = []
        # A name tells when a job was sent.
        for column in sorted(order, key=lambda column: column == "created_s"):
            if column in asked or widths[column] <= left:
                left -= 0 if column in asked else widths[column]
                fitting.append(column)
        table = [cells[column] for column in order if column in fitting]
        for number, line in enumerate(aligned(zip(*table, strict=True))):
            console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
        hidden = [FACTS.get(column, column) for column in order if column not in fitting]
        if hidden:
            note = (
                f"not shown: {', '.join(hidden)}; --params NAMES and --metrics NAMES choose "
                "columns, --json has all"
            )
            Console(stderr=True).print(Text(note), soft_wrap=True)


def _select_columns(chosen: str | None, names: Sequence[str]) -> list[str]:
    columns: list[str] = []
    for name in (chosen or "").split(","):
        matching = (
            [each for each in names if fnmatch.fnmatchcase(each, name)] if "*" in name else [name]
        )
        columns += [each for each in matching if each and each not in columns]
    return columns


def _cell(text: str, column: str) -> str:
    # The mark of a metric that is not finite ends with the step and the rank.
    is_complete = column in FACTS or text.startswith("⚠") or len(text) <= MAX_CELL
    return text if is_complete else f"{text[: MAX_CELL - 1]}…"


def _print_more(arguments: Arguments, count: int) -> None:
    if count > arguments.limit:
        more = (
            f"these are the latest {arguments.limit}; for more: raysm jobs --limit "
            f"{2 * arguments.limit}"
        )
        # stderr: a program may read the list from stdout.
        Console(stderr=True).print(more, highlight=False)

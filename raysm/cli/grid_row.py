"""The verb ``raysm grid row``: a request and an index flow in, what became of the rows of one child is printed."""

import json
import sys

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.console import Console
from raysm.client.job.description import Status
from raysm.errors import InvalidRequest
from raysm.grid.grid_request import GridRequest
from raysm.grid.row_job import RowJob, RowJobs, slice_of

__all__ = ["run"]


def run(request: GridRequest, arguments: Arguments, console: Console) -> int:
    """Send the rows of one child, and wait for them where that is asked for; return the exit code.

    Raises:
        InvalidRequest: There is no row for this index.
    """
    if arguments.per_child < 1:
        raise InvalidRequest(f"--per-child is 1 or more, got {arguments.per_child}")
    # JSON is for a program, which reads nothing else from stdout.
    shown = Console(stderr=True) if arguments.json else console
    rows = RowJobs(request)
    sent_rows: list[RowJob] = []
    for task in slice_of(rows.tasks, arguments.index, arguments.per_child):
        row = rows.send(task)
        sent_rows.append(row)
        verb = "is sent" if row.is_new else "was sent before"
        shown.print(Text(f"{task.key}: {row.job.name} {verb}, to {row.region}"), soft_wrap=True)
    # All are sent before one is waited for.
    statuses = [_status(row, arguments, shown) for row in sent_rows]
    if arguments.json:
        listed = [
            {"key": row.task.key, "job": row.job.name, "region": row.region, "new": row.is_new, "status": status}
            for row, status in zip(sent_rows, statuses, strict=True)
        ]
        json.dump(listed, sys.stdout, indent=1)
        print()
    # Of a child that only sends, what becomes of its jobs is not its own success.
    return int(arguments.wait and any(status is not Status.COMPLETED for status in statuses))


def _status(row: RowJob, arguments: Arguments, console: Console) -> Status:
    if not arguments.wait:
        return row.job.status
    status = row.job.wait()
    reason = row.job.describe().reason if status is Status.FAILED else None
    console.print(Text(f"{row.task.key}: {status}{f': {reason}' if reason else ''}"), soft_wrap=True)
    return status

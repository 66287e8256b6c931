"""The verbs of ``raysm grid`` about a grid that there is: what flows in is its name, what flows out is printed.

The handle does what is asked, as it does for a program; here stands how the answer reads.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import NO_ROLE, read_settings
from raysm.cli.printing import print_answer
from raysm.cli.rows_source import named_source
from raysm.errors import InvalidRequest
from raysm.grid.opening import only_grid
from raysm.grid.row_tables import KEY
from raysm.grid.rows.source import MAX_ROWS
from raysm.views.grid.handle import GridHandle, attach_grid
from raysm.views.grid.screen import screen_lines
from raysm.views.grid.watching import watch

__all__ = ["VERBS", "say"]


def say(text: str, console: Console) -> None:
    """Print a line as it is: a row's name may look like markup, and what is grepped must not be wrapped."""
    console.print(Text(text), soft_wrap=True)


def _answer(arguments: Arguments, console: Console, text: str, **values: Any) -> None:
    if arguments.json:
        print(json.dumps({"grid": arguments.grid, **values}))
    else:
        say(text, console)


def _handle(arguments: Arguments) -> GridHandle:
    if not arguments.shared:
        return attach_grid(arguments.grid or only_grid())
    if not arguments.grid:
        raise InvalidRequest("name the grid: those of other machines are not listed here")
    return attach_grid(arguments.grid, read_settings(arguments).target(role=NO_ROLE))


def _status(arguments: Arguments, console: Console) -> None:
    view = _handle(arguments).status()
    print_answer(view, screen_lines, console, as_json=arguments.json)


def _watch(arguments: Arguments, console: Console) -> None:
    grid = _handle(arguments)
    if not arguments.json:
        watch(grid, console)
        return
    # A line for each look, so that a program reads it as it comes.
    watch(grid, console, show=lambda view: print(json.dumps(view.as_dict()), flush=True))


def _rows(arguments: Arguments, console: Console) -> None:
    rows = _handle(arguments).rows(arguments.state)
    if arguments.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
        return
    for row in rows:
        say(f"{row.state:<10} {row.attempts:>2}  {row.key}{f'  {row.reason}' if row.reason else ''}", console)


def _report(arguments: Arguments, console: Console) -> None:
    path = _handle(arguments).report(arguments.html)
    _answer(arguments, console, str(path), path=str(path))


def _table(arguments: Arguments, console: Console) -> None:
    grid, path = _handle(arguments), arguments.output or Path(f"{arguments.grid}.parquet")
    on = read_settings(arguments).target(role=NO_ROLE)
    count = grid.write_table(path, column=arguments.column or KEY, partial=arguments.partial, on=on)
    _answer(arguments, console, f"{path}: {count:,} records", path=str(path), records=count)


def _stop(arguments: Arguments, console: Console) -> None:
    grid = _handle(arguments)
    if grid.status().state == "closed":
        _answer(arguments, console, f"{grid.name} is over; nothing is to be stopped", state="closed", open=0)
        return
    still = grid.stop()
    text = (
        f"{grid.name} stops: no further job is sent, and {still:,} open ones are stopped by whoever runs it, or by the "
        "same raysm grid run again"
    )
    _answer(arguments, console, text, state="stopping", open=still)


def _retry(arguments: Arguments, console: Console) -> None:
    number = _handle(arguments).retry()
    _answer(arguments, console, f"{number:,} rows of {arguments.grid} wait to be tried again", rows=number)


def _extend(arguments: Arguments, console: Console) -> None:
    grid = GridHandle(arguments.grid)
    number = grid.extend(named_source(arguments), max_rows=arguments.max_rows or MAX_ROWS)
    text = f"{number:,} new rows of {grid.name} wait; whoever runs it, or the same raysm grid run again, sends them"
    _answer(arguments, console, text, rows=number)


VERBS: Mapping[str, Callable[[Arguments, Console], None]] = {
    "status": _status,
    "watch": _watch,
    "rows": _rows,
    "report": _report,
    "table": _table,
    "stop": _stop,
    "retry": _retry,
    "extend": _extend,
}
"""What carries out each of them."""

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
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import print_answer
from raysm.cli.report import print_result
from raysm.cli.rows_source import named_source
from raysm.cli.sending import check_output
from raysm.contract.names import counted
from raysm.errors import InvalidRequest
from raysm.grid.endings import brief
from raysm.grid.local_grids import grid_names, only_grid
from raysm.grid.row import KEY
from raysm.grid.rows.source import MAX_ROWS
from raysm.views.grid.handle import GridHandle, attach_grid
from raysm.views.grid.screen import screen_lines
from raysm.views.grid.watching import watch

__all__ = ["VERBS", "say"]

MAX_NAMED = 20
"""Jobs named in one line."""


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
        raise InvalidRequest("name the grid; grids of other machines are not listed")
    return attach_grid(arguments.grid, read_settings(arguments).target(role=NO_ROLE))


def _status(arguments: Arguments, console: Console) -> None:
    view = _handle(arguments).status()
    print_answer(view, screen_lines, console, as_json=arguments.json)


def _watch(arguments: Arguments, console: Console) -> None:
    grid = _handle(arguments)
    if not arguments.json:
        watch(grid.status, console)
        return
    # A line for each look, so that a program reads it as it comes.
    watch(grid.status, console, show=lambda view: print(json.dumps(view.as_dict()), flush=True))


def _rows(arguments: Arguments, console: Console) -> None:
    rows = _handle(arguments).rows(arguments.state)
    if arguments.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
        return
    cells = [(row.state.value, str(row.attempts), " ".join(row.key.split()), row.job or "-") for row in rows]
    table = [("state", "jobs", "key", "last job"), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line, reason in zip(table, ("reason", *(brief(row.reason) for row in rows)), strict=True):
        say("  ".join((*map(str.ljust, line, widths), reason)).rstrip(), console)


def _list(arguments: Arguments, console: Console) -> None:
    grids = {name: GridHandle(name).status() for name in grid_names()}
    if arguments.json:
        print(json.dumps([{"name": name, "state": view.state, "states": view.states} for name, view in grids.items()]))
        return
    for name, view in grids.items():
        states = ", ".join(f"{count:,} {state}" for state, count in view.states.items())
        say(f"{name}  {view.state}  {counted(view.total, 'row')}{f': {states}' if states else ''}", console)
    if not grids:
        say("no grid was run on this machine; raysm grid run makes one", console)


def _result(arguments: Arguments, console: Console) -> None:
    if arguments.output is not None:
        check_output(arguments.output)
    result = _handle(arguments).result(arguments.key, to=arguments.output)
    print_result(console, result, workload="script", as_json=arguments.json)


def _report(arguments: Arguments, console: Console) -> None:
    path = _handle(arguments).report(arguments.html)
    _answer(arguments, console, str(path), path=str(path))


def _table(arguments: Arguments, console: Console) -> None:
    grid, path = _handle(arguments), arguments.output or Path(f"{arguments.grid}.parquet")
    on = read_settings(arguments).target(role=NO_ROLE)
    count = grid.write_table(path, column=arguments.column or KEY, partial=arguments.partial, on=on)
    _answer(arguments, console, f"{path}: {counted(count, 'record')}", path=str(path), records=count)


def _stop(arguments: Arguments, console: Console) -> None:
    grid = _handle(arguments)
    if grid.status().state == "closed":
        _answer(arguments, console, f"{grid.name} is closed: it has no open job", state="closed", open=0)
        return
    done = grid.stop()
    if done.stopped:
        more = f" and {len(done.stopped) - MAX_NAMED:,} more" if len(done.stopped) > MAX_NAMED else ""
        stopped = f"stopped {counted(len(done.stopped), 'job')}: {', '.join(done.stopped[:MAX_NAMED])}{more}"
    else:
        stopped = "no job is sent any more"
    left = ""
    if done.has_controller:
        left = f"; the controller of {grid.name} stops its {counted(done.open, 'open job')}"
    elif done.open:
        left = f"; {counted(done.open, 'job')} still open: the same raysm grid run again stops them"
    state = grid.status().state
    values = {"state": state, "open": done.open, "stopped": list(done.stopped)}
    _answer(arguments, console, f"{grid.name}: {stopped}{left}", **values)


def _retry(arguments: Arguments, console: Console) -> None:
    number = _handle(arguments).retry()
    text = f"{counted(number, 'row')} of {arguments.grid} will be tried again by the next raysm grid run"
    _answer(arguments, console, text, rows=number)


def _extend(arguments: Arguments, console: Console) -> None:
    grid = GridHandle(arguments.grid)
    number = grid.extend(named_source(arguments), max_rows=arguments.max_rows or MAX_ROWS)
    text = f"{counted(number, 'new row')} of {grid.name}; the controller, or the next raysm grid run, sends their jobs"
    _answer(arguments, console, text, rows=number)


VERBS: Mapping[str, Callable[[Arguments, Console], None]] = {
    "status": _status,
    "watch": _watch,
    "list": _list,
    "rows": _rows,
    "result": _result,
    "report": _report,
    "table": _table,
    "stop": _stop,
    "retry": _retry,
    "extend": _extend,
}
"""What carries out each of them."""

"""The command ``raysm grid``: what is asked for on the command line and in files, and how its answer is printed."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from raysm.cli import grid_by_batch, grid_row, grids
from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import Console, print_answer
from raysm.cli.grid_events import follow
from raysm.cli.rows_source import named_source
from raysm.cli.sending import options_of
from raysm.client.service import Service
from raysm.client.settings import Key, Layer, Settings
from raysm.contract.names import counted
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.filling import Template
from raysm.grid.grid_file import GridFile, read_grid_file
from raysm.grid.grid_request import GridRequest
from raysm.grid.planning import planned
from raysm.grid.rows.source import MAX_ROWS, Source
from raysm.grid.rules import Rules
from raysm.grid.running import open_running
from raysm.grid.snapshot import snapshot
from raysm.request.cluster import LOCAL_TYPE
from raysm.views.grid.plan_text import plan_lines
from raysm.views.grid.screen import screen_lines

__all__ = ["request_of", "run"]

RULES = {
    "write_back": "write_back",
    "budget": "budget_usd",
    "parallel": "parallel",
    "retries": "retries",
    "move_data": "move_data",
    "any_type": "any_type",
    "rate": "rate",
}
"""Flags, and the rules that they are."""


def run(arguments: Arguments, console: Console) -> int | None:
    """Do what the verb says; return the exit code, None where it is 0.

    Raises:
        InvalidRequest: What is asked for cannot be.
    """
    return VERBS[arguments.verb](arguments, console)


def _plan(arguments: Arguments, console: Console) -> None:
    print_answer(planned(request_of(arguments)).plan, plan_lines, console, as_json=arguments.json)


def _run(arguments: Arguments, console: Console) -> int:
    # Planned first: what cannot be is refused before anything is sent.
    grid = planned(request_of(arguments))
    file = _file(arguments)
    controller = grid_by_batch.controller_of(arguments, {} if file is None else file.batch)
    if controller is not None:
        return grid_by_batch.run(grid, controller, arguments, console)
    running = open_running(
        grid.request,
        grid.tasks,
        grid.facts,
        functools.lru_cache(Service),
        goes_on=arguments.go_on,
        planned_usd=grid.plan.usd,
    )
    try:
        shown = Console(stderr=True) if arguments.json else console
        left = (
            f"{region} was removed from the grid: its open jobs run to their end, and no job starts there"
            for region in running.left
        )
        for note in (*grid.plan.notes, *left):
            shown.print(Text(f"note: {note}"), soft_wrap=True)
        shown.print(
            Text(f"grid {grid.plan.name}: {counted(len(grid.tasks), 'row')}, {running.added:,} new"), soft_wrap=True
        )
        follow(running, shown)
        view = snapshot(running.store, running.clock.now())
    except KeyboardInterrupt:
        text = (
            f"its jobs keep running: run the same command to continue, or raysm grid stop {grid.plan.name} to stop them"
        )
        shown.print(Text(text), soft_wrap=True)
        raise
    finally:
        running.close()
    print_answer(view, screen_lines, console, as_json=arguments.json)
    return 0 if set(view.states) <= {TaskState.DONE, TaskState.SKIPPED} else 1


def request_of(arguments: Arguments) -> GridRequest:
    """Return the grid that a command line asks for; flags win over its file, and that over the project's.

    Raises:
        InvalidRequest: A file or a flag says what cannot be, or nothing says where rows come from.
    """
    path = Path(arguments.what)
    file = _file(arguments)
    settings = _settings(arguments, file, path)
    workload, options = settings.workload(), options_of(settings)
    # The name of a task is each row's own, and of finished jobs the grid's store knows.
    for name in ("name", "if_done"):
        options.pop(name, None)
    own_types = () if settings.on.names_own_types else (LOCAL_TYPE,)
    spot = arguments.spot
    return GridRequest(
        name=arguments.name or (file.name if file is not None else path.stem),
        template=Template(workload=workload, target=settings.target(role=NO_ROLE), options=options),
        source=_source(arguments, file),
        regions=tuple(arguments.regions) or (file.regions if file is not None else ()),
        instance_types=tuple(arguments.instance_type) or (file.instance_types if file is not None else ()) or own_types,
        count=_first(arguments.instances, file and file.count, 1),
        markets=(True,) if spot else (file.markets if file is not None else None) or (False,),
        rules=_rules(arguments, file),
        max_rows=_first(arguments.max_rows, file and file.max_rows, MAX_ROWS),
        shared=arguments.shared,
    )


def _file(arguments: Arguments) -> GridFile | None:
    path = Path(arguments.what)
    return read_grid_file(path) if path.suffix == ".toml" else None


def _settings(arguments: Arguments, file: GridFile | None, path: Path) -> Settings:
    base = read_settings(arguments, *(() if file is None else (file.layer,)))
    values: dict[Key, Any] = {}
    if file is None:
        values |= {("workload", "kind"): "script", ("workload", "script"): str(path)}
    if arguments.script_args:
        values["workload", "args"] = list(arguments.script_args)
    asked = Layer(values=values, origin=lambda key: "raysm grid")
    return Settings([Layer(values=base.values, origin=base.origin), asked])


def _source(arguments: Arguments, file: GridFile | None) -> Source:
    source = named_source(arguments) or (file.source if file is not None else None)
    if source is None:
        raise InvalidRequest("the grid has no rows; give --rows FILE or --sql DATABASE QUERY")
    return source


def _rules(arguments: Arguments, file: GridFile | None) -> Rules:
    rules = (file.rules if file is not None else None) or Rules()
    chosen = {rule: getattr(arguments, flag, None) for flag, rule in RULES.items()}
    return replace(rules, **{rule: value for rule, value in chosen.items() if value is not None})


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


VERBS: Mapping[str, Callable[[Arguments, Console], int | None]] = {
    "plan": _plan,
    "run": _run,
    "row": lambda arguments, console: grid_row.run(request_of(arguments), arguments, console),
    "take-up": grid_by_batch.take_up_here,
    **grids.VERBS,
}
"""What carries out each verb."""

"""The command ``raysm grid``: read requests from the command line and files, print answers."""

import functools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import Console, aligned, print_answer, say
from raysm.cli.report import print_result
from raysm.cli.sending import check_output
from raysm.core.client.job.description import Status
from raysm.core.client.service import Service, services_in
from raysm.core.client.settings import Key, Layer, Settings, packaged_options
from raysm.core.protocol.names import counted, listed
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.errors import InvalidRequest
from raysm.features.grid.batch_job.array_child import RowJob, RowJobs, SentRow, sent_rows, slice_of
from raysm.features.grid.batch_job.controller_job import ControllerJob, send
from raysm.features.grid.batch_job.handover import exit_code, take_up
from raysm.features.grid.client.handle import GridHandle, attach_grid
from raysm.features.grid.endings import brief
from raysm.features.grid.grid_request import GridFile, GridRequest, read_grid_file
from raysm.features.grid.local_grids import SentController, grid_names, only_grid
from raysm.features.grid.plan import PlannedGrid, make_plan
from raysm.features.grid.row import RowState
from raysm.features.grid.row_results import KEY
from raysm.features.grid.row_view import GridRow, check_state
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import Running, open_running
from raysm.features.grid.snapshot import snapshot
from raysm.features.grid.sources.databases import Query
from raysm.features.grid.sources.source import MAX_ROWS, Source, source_of
from raysm.features.grid.store.store import GridState, path_of
from raysm.features.grid.template import Template
from raysm.features.grid.views.text import plan_lines, screen_lines
from raysm.features.grid.views.watching import watch

RULES = ("max_cost", "write_back", "parallel", "retries", "move_data", "any_type", "rate")


def run(arguments: Arguments, console: Console) -> int | None:
    return VERBS[arguments.verb](arguments, console)


def _messages(arguments: Arguments, console: Console) -> Console:
    return Console(stderr=True) if arguments.json else console


# -- the request


def request_of(arguments: Arguments) -> GridRequest:
    """Return the request of a command line.

    Flags override the grid's file, which overrides the project's file.
    """
    path = Path(arguments.what)
    file = _file(arguments)
    base = read_settings(arguments, *(() if file.layer is None else (file.layer,)))
    values: dict[Key, Any] = {}
    if file.layer is None:
        values |= {("workload", "kind"): "script", ("workload", "script"): str(path)}
    if arguments.script_args:
        values["workload", "args"] = list(arguments.script_args)
    asked = Layer(values=values, origin=lambda key: "raysm grid")
    settings = Settings([Layer(values=base.values, origin=base.origin), asked])
    workload = settings.workload()
    options = packaged_options(settings)
    # Each row names its own jobs, and the grid's store knows the finished ones.
    for name in ("name", "if_done", "regions", "region_wait_s"):
        options.pop(name, None)
    own_types = () if settings.on.names_own_types else (LOCAL_TYPE,)
    source = named_source(arguments) or file.source
    if source is None:
        raise InvalidRequest("the grid has no rows; give --rows FILE or --sql DATABASE QUERY")
    rules = file.rules or Rules()
    chosen: dict[str, Any] = {rule: getattr(arguments, rule, None) for rule in RULES}
    return GridRequest(
        name=arguments.name or file.name or path.stem,
        template=Template(workload=workload, target=settings.target(role=NO_ROLE), options=options),
        source=source,
        regions=tuple(arguments.regions) or file.regions,
        instance_types=tuple(arguments.instance_type) or file.instance_types or own_types,
        count=_first(arguments.instances, file.count, 1),
        markets=(True,) if arguments.spot else file.markets or (False,),
        rules=replace(
            rules, **{rule: value for rule, value in chosen.items() if value is not None}
        ),
        max_rows=_first(arguments.max_rows, file.max_rows, MAX_ROWS),
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _file(arguments: Arguments) -> GridFile:
    path = Path(arguments.what)
    return read_grid_file(path) if path.suffix == ".toml" else GridFile()


def named_source(arguments: Arguments) -> Source | None:
    if arguments.param and not arguments.sql:
        raise InvalidRequest("--param goes with a query: --sql DATABASE QUERY")
    if arguments.columns and arguments.rows is None:
        raise InvalidRequest(
            "--columns goes with --rows FILE, a file whose first line has no column names"
        )
    if arguments.sql:
        database, text = arguments.sql
        params: dict[str, str] = {}
        for word in arguments.param:
            name, equals, value = word.partition("=")
            if not (name and equals):
                raise InvalidRequest(f"--param takes NAME=VALUE, got {word!r}")
            if name in params:
                raise InvalidRequest(f"the parameter {name!r} is given twice")
            params[name] = value
        return source_of(Query(text, on=database, params=params))
    if arguments.rows is None:
        return None
    source = source_of(arguments.rows)
    return source.with_columns(arguments.columns) if arguments.columns else source


# -- plan and run


def _plan(arguments: Arguments, console: Console) -> None:
    print_answer(make_plan(request_of(arguments)).plan, plan_lines, console, as_json=arguments.json)


def _run(arguments: Arguments, console: Console) -> int:
    # Plan first, so that an invalid request sends nothing.
    grid = make_plan(request_of(arguments))
    controller = controller_of(arguments, _file(arguments).batch)
    if controller is not None:
        return _run_by_batch(grid, controller, arguments, console)
    shown = _messages(arguments, console)
    running = open_running(grid, functools.lru_cache(Service), goes_on=arguments.go_on)
    try:
        for note in grid.plan.notes:
            say(f"note: {note}", shown)
        for region in running.removed:
            text = (
                f"{region} was removed from the grid: "
                "its open jobs run to their end, and no job starts there"
            )
            say(f"note: {text}", shown)
        say(
            f"grid {grid.plan.name}: {counted(len(grid.rows), 'row')}, {running.added:,} new",
            shown,
        )
        follow(running, shown)
        view = snapshot(running.store, running.clock.now())
    except KeyboardInterrupt:
        command = f"raysm grid stop {grid.plan.name}"
        say(
            f"its jobs keep running: run the same command to continue, or {command} to stop them",
            shown,
        )
        raise
    finally:
        running.close()
    print_answer(view, screen_lines, console, as_json=arguments.json)
    return 0 if set(view.states) <= {RowState.DONE} else 1


def follow(running: Running, console: Console) -> None:
    # For a new grid show all events, for a continued grid only new ones.
    is_new = 0 < running.added == sum(running.store.rows.states().values())
    last = (
        0
        if is_new
        else max((event.seq for event in running.store.events.after(limit=10**9)), default=0)
    )

    def sleep(seconds: float) -> None:
        nonlocal last
        # Print all events: a stop changes all waiting rows in one step, which may be the last.
        while events := running.store.events.after(last):
            for event in events:
                if event.row_key is not None and event.attempt is None:
                    say(f"{event.row_key}: {event.now} {brief(event.text)}".rstrip(), console)
            last = events[-1].seq
        running.clock.sleep(seconds)

    running.run(sleep)
    sleep(0.0)


# -- AWS Batch: a controller job, and the children of an array

ASKED_S = 10.0
"""Seconds between two checks of the Batch job, whose failure the grid itself does not show."""

TERMINATED = 128 + signal.SIGTERM
"""Exit code of a process ended by SIGTERM, by which Batch starts the controller again."""

FLAGS = (
    "job_queue",
    "job_definition",
    "job_image",
    "job_role",
    "execution_role",
    "assign_public_ip",
)


def controller_of(arguments: Arguments, in_file: Mapping[str, Any]) -> ControllerJob | None:
    """Return the Batch job that should run the grid, or None for this process.

    Flags override the grid's file.
    """
    named = {
        name: value
        for name, value in vars(arguments).items()
        if name in FLAGS and value is not None
    }
    if arguments.via is None:
        if named:
            flag = next(iter(named)).replace("_", "-")
            raise InvalidRequest(f"--{flag} is an option of --via batch; add --via batch")
        return None
    # --image is the image of the training jobs.
    fields = {
        **in_file,
        **{name.replace("job_image", "image"): value for name, value in named.items()},
    }
    if "job_queue" not in fields:
        raise InvalidRequest(
            "--via batch needs --job-queue, the name of a job queue of EC2 or Fargate"
        )
    return ControllerJob(**cast(Any, fields))


def _run_by_batch(
    grid: PlannedGrid, controller: ControllerJob, arguments: Arguments, console: Console
) -> int:
    shown = _messages(arguments, console)
    sent = send(grid, controller, goes_on=arguments.go_on)
    name = grid.plan.name
    target = grid.request.template.target
    handle = attach_grid(name)
    text = (
        "nothing is left to do"
        if sent is None
        else f"{sent} runs it; Ctrl-C stops only the display"
    )
    say(f"grid {name}: {counted(len(grid.rows), 'row')}; {text}", shown)
    if sent is not None:
        watch(handle.status, shown, sleep=_watching(sent, Service(target)))
    view = handle.status()
    if arguments.json or sent is None:
        print_answer(view, screen_lines, console, as_json=arguments.json)
    return 0 if set(view.states) <= {RowState.DONE} else 1


def _watching(controller: SentController, service: Service) -> Callable[[float], None]:
    asked_s = time.monotonic()

    def sleep(seconds: float) -> None:
        nonlocal asked_s
        if time.monotonic() - asked_s >= ASKED_S:
            controller.check(service)
            asked_s = time.monotonic()
        time.sleep(seconds)

    return sleep


def _take_up(arguments: Arguments, console: Console) -> int:
    service = Service(read_settings(arguments).target(role=NO_ROLE))
    # Batch and spot hosts end a job with SIGTERM, which by default ends Python without cleanup.
    previous = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        with tempfile.TemporaryDirectory(prefix="raysm-grid-") as folder:
            running = take_up(arguments.uri, service, Path(folder))
            try:
                follow(running, console)
                return exit_code(running)
            finally:
                # Release the lease at once for the next controller.
                running.close()
    finally:
        signal.signal(signal.SIGTERM, previous)


def _row(arguments: Arguments, console: Console) -> int:
    if arguments.per_child < 1:
        raise InvalidRequest(f"--per-child must be at least 1, got {arguments.per_child}")
    shown = _messages(arguments, console)
    row_jobs = RowJobs(request_of(arguments))
    sent: list[RowJob] = []
    for row in slice_of(row_jobs.rows, arguments.index, arguments.per_child):
        row_job = row_jobs.send(row)
        sent.append(row_job)
        verb = "is sent" if row_job.is_new else "was sent before"
        say(f"{row.key}: {row_job.job.name} {verb}, to {row_job.region}", shown)
    # Send all rows before waiting for the first.
    statuses = []
    for row_job in sent:
        status = row_job.job.wait() if arguments.wait else row_job.job.status
        statuses.append(status)
        if arguments.wait:
            reason = row_job.job.describe().reason if status is Status.FAILED else None
            say(f"{row_job.row.key}: {status}{f': {reason}' if reason else ''}", shown)
    if arguments.json:
        jobs = [
            {
                "key": row_job.row.key,
                "job": row_job.job.name,
                "region": row_job.region,
                "new": row_job.is_new,
                "status": status,
            }
            for row_job, status in zip(sent, statuses, strict=True)
        ]
        print(json.dumps(jobs, indent=1))
    # Without --wait, the child only sends.
    return int(arguments.wait and any(status is not Status.COMPLETED for status in statuses))


# -- verbs about an existing grid

MAX_NAMED = 20


def _answer(arguments: Arguments, console: Console, text: str, **values: Any) -> None:
    if arguments.json:
        print(json.dumps({"grid": arguments.grid, **values}))
    else:
        say(text, console)


def _handle(arguments: Arguments) -> GridHandle:
    return attach_grid(arguments.grid or only_grid())


def _status(arguments: Arguments, console: Console) -> None:
    print_answer(_handle(arguments).status(), screen_lines, console, as_json=arguments.json)


def _watch(arguments: Arguments, console: Console) -> None:
    # One line of JSON per update, so that a program can read each as it comes.
    show = (lambda view: print(json.dumps(view.as_dict()), flush=True)) if arguments.json else None
    watch(_handle(arguments).status, console, show=show)


def _rows(arguments: Arguments, console: Console) -> None:
    sent: list[SentRow] = []
    if path_of(arguments.grid).exists():
        if arguments.rate is not None:
            raise InvalidRequest(
                f"{arguments.grid} is a grid of this machine, which reads the rate of its own "
                f"metric: raysm grid status {arguments.grid} shows it",
                remedy="give --rate METRIC to raysm grid run",
            )
        rows: Sequence[GridRow] = _handle(arguments).rows(arguments.state)
    else:
        check_state(arguments.state)
        sent = sent_rows(
            arguments.grid,
            services_in(read_settings(arguments).target(role=NO_ROLE), arguments.regions),
            arguments.rate,
        )
        if not sent:
            attach_grid(arguments.grid)  # raises InvalidRequest
        rows = sent = [row for row in sent if arguments.state in (None, row.state)]
    if arguments.json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
        return
    columns = {
        "index": [str(row.index) for row in sent],
        "state": [row.state.value for row in rows],
        "jobs": [str(row.attempts) for row in rows],
        "key": [" ".join(row.key.split()) for row in rows],
        "rate": ["-" if row.rate is None else f"{row.rate:,.0f}" for row in rows],
        "last job": [row.job or "-" for row in rows],
        "result": [row.result or "-" for row in sent],
        "reason": [brief(row.reason) for row in rows],
    }
    left_out = [] if sent else ["index", "result"]
    if arguments.rate is None:
        left_out.append("rate")
    shown = [(head, *cells) for head, cells in columns.items() if head not in left_out]
    for line in aligned(zip(*shown, strict=True)):
        say(line, console)
    if arguments.rate is not None:
        say(_describe_rate(rows, arguments.rate), console)


def _describe_rate(rows: Sequence[GridRow], metric: str) -> str:
    """Add up the rates of the jobs that run; what others reported last is work of the past."""
    running = [row.rate for row in rows if row.state is RowState.PLACED and row.rate is not None]
    if not running:
        return (
            f"rate    no running job has reported {metric} in the last 10 minutes; jobs that were "
            f"sent by raysm grid row --rate {metric} have it in CloudWatch"
        )
    return (
        f"rate    {sum(running):,.0f} {metric} combined, of {counted(len(running), 'running job')}"
    )


def _list(arguments: Arguments, console: Console) -> None:
    grids = {name: GridHandle(name).status() for name in grid_names()}
    if arguments.json:
        print(
            json.dumps(
                [
                    {"name": name, "state": view.state, "states": view.states}
                    for name, view in grids.items()
                ]
            )
        )
        return
    for name, view in grids.items():
        states = ", ".join(f"{count:,} {state}" for state, count in view.states.items())
        say(
            f"{name}  {view.state}  {counted(view.total, 'row')}{f': {states}' if states else ''}",
            console,
        )
    if not grids:
        say("this machine has no grids; raysm grid run creates one", console)


def _result(arguments: Arguments, console: Console) -> None:
    check_output(arguments.output)
    result = _handle(arguments).result(arguments.key, to=arguments.output)
    print_result(console, result, workload="script", as_json=arguments.json)


def _report(arguments: Arguments, console: Console) -> None:
    path = _handle(arguments).report(arguments.html)
    _answer(arguments, console, str(path), path=str(path))


def _table(arguments: Arguments, console: Console) -> None:
    grid = _handle(arguments)
    path = arguments.output or Path(f"{arguments.grid}.parquet")
    count = grid.write_table(path, column=arguments.column or KEY, partial=arguments.partial)
    _answer(
        arguments, console, f"{path}: {counted(count, 'record')}", path=str(path), records=count
    )


def _stop(arguments: Arguments, console: Console) -> None:
    grid = _handle(arguments)
    if grid.status().state == GridState.CLOSED:
        _answer(
            arguments,
            console,
            f"{grid.name} is closed and has no open jobs",
            state=GridState.CLOSED,
            open=0,
        )
        return
    done = grid.stop()
    stopped = "no further job is sent"
    if done.stopped:
        stopped = f"stopped {counted(len(done.stopped), 'job')}: {listed(done.stopped, MAX_NAMED)}"
    left = ""
    if done.has_controller:
        left = f"; the controller of {grid.name} stops its {counted(done.open, 'open job')}"
    elif done.open:
        left = f"; {counted(done.open, 'job')} still open: the same raysm grid run again stops them"
    values = {"state": grid.status().state, "open": done.open, "stopped": list(done.stopped)}
    _answer(arguments, console, f"{grid.name}: {stopped}{left}", **values)


def _retry(arguments: Arguments, console: Console) -> None:
    number = _handle(arguments).retry()
    text = (
        f"{counted(number, 'row')} of {arguments.grid} will be tried again by "
        "the next raysm grid run"
    )
    _answer(arguments, console, text, rows=number)


def _extend(arguments: Arguments, console: Console) -> None:
    grid = GridHandle(arguments.grid)
    number = grid.extend(named_source(arguments), max_rows=arguments.max_rows or MAX_ROWS)
    text = (
        f"{counted(number, 'new row')} of {grid.name}; "
        "the controller, or the next raysm grid run, sends their jobs"
    )
    _answer(arguments, console, text, rows=number)


VERBS: Mapping[str, Callable[[Arguments, Console], int | None]] = {
    "plan": _plan,
    "run": _run,
    "row": _row,
    "take-up": _take_up,
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

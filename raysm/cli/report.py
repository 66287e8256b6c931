"""Print a result: its files, how to read them, time, cost and metrics."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.console import aligned, say_aside
from raysm.cli.display import Times
from raysm.core.client.costs import bill as costs
from raysm.core.client.costs.bill import Bill
from raysm.core.client.job.handle import Job, LeftFiles
from raysm.core.client.logs.metrics import Metrics
from raysm.core.client.logs.rendering import metric_value
from raysm.core.client.results.result import Result, earlier_result
from raysm.core.protocol.names import natural
from raysm.core.protocol.result import ResultFile, how_to_read
from raysm.core.request.codec import spelled, to_json
from raysm.core.request.workload import Workload, built_in_kind

SHOWN = 3


def brought(job: Job, output: Path | None, console: Console, *, unverified: bool = False) -> Any:
    # Read before the new result replaces it.
    earlier = None if output is None else earlier_result(output)
    result = job.result(to=output, unverified=unverified)
    if earlier is not None and earlier.job != job.name:
        console.print(Text(f"replaced the result of {earlier.job} in {output}"), soft_wrap=True)
    return result


def described(job: Job) -> dict[str, Any]:
    description = job.describe()
    bill = job.cost()
    return {
        "name": description.name,
        "arn": description.arn,
        "region": job.service.region,
        "status": str(description.status),
        "secondary_status": str(description.secondary),
        "message": description.message or None,
        "failure_reason": description.reason or None,
        "used_budget_usd": description.used_budget_usd,
        "instances": [{"type": kind, "count": count} for kind, count in job.instances],
        "created": description.created.isoformat() if description.created else None,
        "started": description.started.isoformat() if description.started else None,
        "ended": description.ended.isoformat() if description.ended else None,
        "billable_s": description.billable_s,
        "training_s": description.training_s,
        "cost": None if bill is None else bill.as_dict(),
        "transitions": [
            {
                "status": status,
                "begin": begin.isoformat() if begin else None,
                "end": end.isoformat() if end else None,
            }
            for status, begin, end in description.transitions
        ],
    }


def print_result(
    console: Console,
    result: Any,
    *,
    workload: str = "",
    as_json: bool = False,
    times: Times | None = None,
    bill: Bill | None = None,
    job: Job | None = None,
) -> None:
    """Print a result; ``job`` is the one that left it, which may have left other files."""
    if as_json:
        print(
            json.dumps(_json(result) | ({} if bill is None else {"cost": bill.as_dict()}), indent=1)
        )
        return
    match result:
        case Result():
            lines = [*_lines(result), ("time", _shares(times, result.manifest.phases_s))]
            for label, text in lines:
                console.print(Text(f"{label:<8} {text}"), soft_wrap=True)
            if result.view:
                console.print(Text(f"\n{result.view}\n"), soft_wrap=True)
        case _:
            done = f"completed in {_shares(times, {})}" if times else "completed"
            # Only built-in kinds: the tag may have been written by others, and must not cause an
            # import.
            remains = _what_remains(result, built_in_kind(workload), job)
            console.print(Text(done + remains), soft_wrap=True)
    for label, text in [] if bill is None else costs.lines(bill):
        console.print(Text(f"{label:<8} {text}"), soft_wrap=True)


def _what_remains(result: Any, kind: type[Workload] | None, job: Job | None) -> str:
    match result:
        case Path():
            return f"; its files are in {_shown(result)}/"
        # None may also be the value of a function.
        case None if kind is None:
            return ""
        case None if kind is not None and not kind.returns_value:
            left = [] if job is None else job.left_files(SHOWN + 1)
            if job is None or not left:
                return f"; nothing was kept: a job keeps {kind.keeps}"
            return "".join(
                ["; it has no result, but it left", *(_left(job.name, each) for each in left)]
            )
    return f": {result!r}"


def _left(job: str, left: LeftFiles) -> str:
    shown = ", ".join([*left.names[:SHOWN], *(["…"] if len(left.names) > SHOWN else [])])
    return (
        f"\n{left.part:<8} {shown} in {left.uri}\n"
        f"fetch it raysm result {job} --what {left.part} --output DIR"
    )


def _lines(result: Result) -> list[tuple[str, str]]:
    lines = [("summary", result.manifest.summary)] if result.manifest.summary else []
    tables: dict[str, list[ResultFile]] = {}
    for file in result.manifest.files:
        # raysm's own files have a shape; those of a script in one folder may be different tables.
        is_part = bool(file.shape) and "/" in file.name and file.name.endswith(".parquet")
        if how_to_read(file.name):
            tables.setdefault(file.name.rpartition("/")[0] if is_part else file.name, []).append(
                file
            )
    for name, parts in tables.items():
        path = _shown(result.path / name)
        file = parts[0]
        text = f"{path}: {file.size}"
        if name != file.name:
            shape = (sum(part.shape[0] for part in parts), *file.shape[1:])
            whole = replace(file, shape=shape, bytes=sum(part.bytes for part in parts))
            count = f"{len(parts):,} part{'s' * (len(parts) > 1)}"
            text = f"{path}/: {count}, {whole.size}"
        lines += [("result", text), ("read it", how_to_read(path, PurePath(file.name).suffix))]
    others = [file for file in result.manifest.files if not how_to_read(file.name)]
    if not others:
        return lines
    names = [file.name for file in others[:SHOWN]]
    more = [f"{len(others) - SHOWN:,} more"] if len(others) > SHOWN else []
    size = sum(file.bytes for file in others)
    return [
        *lines,
        ("result", f"{_shown(result.path)}/: {', '.join([*names, *more])}, {size:,} bytes"),
    ]


def _shares(times: Times | None, phases_s: Mapping[str, float]) -> str:
    whole_s, parts = (None, phases_s) if times is None else times.parts(phases_s)
    shares = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    return shares if whole_s is None else f"{whole_s:.1f} s ({shares})"


def _shown(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def _json(result: Any) -> dict[str, Any]:
    match result:
        case Result():
            return {"path": str(result.path), "manifest": to_json(result.manifest)}
        case Path():
            return {"path": str(result)}
    # The value of a function may not fit into JSON.
    return {"value": repr(result)}


HOW = (
    "report metrics by raysm.report(loss=0.5), "
    "or in a training loop by training.report(loss=0.5); --metric NAME=REGEX (in Python "
    "metrics=[raysm.MetricDefinition(name, regex)]) finds metrics in printed lines"
)

TELEMETRY = (
    "in trainings, each instance reports its use of CPUs, memory, network, "
    "disks and GPUs every few seconds; in other jobs of raysm, only its peak memory at the end; "
    "other jobs report nothing"
)


def print_metrics(arguments: Arguments, job: Job, console: Console) -> None:
    # All are read, because the message for an empty choice names the others.
    everything = job.metrics()
    if arguments.telemetry:
        chosen = everything.of_instances()
    elif arguments.all or arguments.json:
        chosen = everything
    else:
        chosen = everything.of_job()
    named = chosen.named(*arguments.name)
    if arguments.json:
        print(json.dumps([spelled(asdict(metric)) for metric in named], indent=1))
    elif named:
        for table in (_steps(named.of_job()), _instances(named.of_instances())):
            for line in table:
                console.print(Text(line), soft_wrap=True)
        if means := sorted(everything.minute_means.intersection(named.names)):
            text = (
                f"{', '.join(means)}: CloudWatch's means of each minute, "
                "because the log has no values"
            )
            say_aside(text)
    else:
        console.print(Text(_nothing(arguments, job, everything, chosen)), soft_wrap=True)


def _steps(metrics: Metrics) -> list[str]:
    """Return a row for each step, and for each time when values without a step were reported."""
    rows = metrics.rows()
    columns = metrics.names
    has_steps = any(row[0] is not None for row in rows)
    has_times = any(row[0] is None for row in rows)
    table = [[*(["step"] if has_steps else []), *(["time"] if has_times else []), *columns]]
    for step, at_s, values in rows:
        cells = []
        if has_steps:
            cells.append("" if step is None else str(step))
        if has_times:
            clock = time.strftime("%H:%M:%S", time.localtime(at_s))
            cells.append(clock if step is None else "")
        cells += [metric_value(values[name]) if name in values else "" for name in columns]
        table.append(cells)
    return aligned(table, str.rjust) if rows else []


def _instances(metrics: Metrics) -> list[str]:
    """Return a summary row for each instance and metric: there may be a value every few seconds."""
    values: dict[tuple[str, str], list[float]] = {}
    for metric in metrics:
        values.setdefault((metric.host, metric.name), []).append(metric.value)
    table = [["instance", "metric", "values", "mean", "most", "last"]]
    for (host, name), series in sorted(
        values.items(), key=lambda item: (natural(item[0][0]), item[0][1])
    ):
        figures = (sum(series) / len(series), max(series), series[-1])
        table.append([host, name, str(len(series)), *map(metric_value, figures)])
    return aligned(table, str.rjust) if values else []


def _nothing(arguments: Arguments, job: Job, everything: Metrics, chosen: Metrics) -> str:
    if chosen:
        return (
            f"no metric is named {' or '.join(arguments.name)}; "
            f"{job.name} has {', '.join(chosen.names)}"
        )
    if arguments.telemetry:
        return (
            f"no metrics of the instances of {job.name}{'' if job.done() else ' yet'}: {TELEMETRY}"
        )
    if everything.of_instances():
        return (
            f"no metrics but those of the instances (raysm metrics --telemetry {job.name}): {HOW}"
        )
    return f"no metrics{'' if job.done() else ' yet'}: {HOW}"

"""The command ``raysm metrics``: a row for each step and a column for each name; of instances, what it comes to."""

import json
import time
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.client.job.handle import Job
from raysm.client.logs.metrics import Metrics
from raysm.client.logs.rendering import metric_value

__all__ = ["print_metrics"]

HOW = (
    "a script or function reports one by raysm.report(loss=0.5), a training loop by training.report(loss=0.5); "
    "raysm.submit(metrics=[raysm.MetricDefinition(name, regex)]) lets the service find those that it prints itself"
)

TELEMETRY = (
    "in a training each instance tells every few seconds how busy its CPUs, memory, network, disks and GPUs are; in "
    "every other job only its peak memory, when it ends; and in a job that raysm did not send nothing"
)


def print_metrics(arguments: Arguments, job: Job, console: Console) -> None:
    """Print the metrics of a job: its own, or those of its instances where that is asked for.

    As JSON they are all, unless fewer are asked for.
    """
    # Read once, and whole: where nothing is chosen, the message says what there is instead.
    everything = job.metrics()
    if arguments.telemetry:
        chosen = everything.of_instances()
    elif arguments.all or arguments.json:
        chosen = everything
    else:
        chosen = everything.of_job()
    named = chosen.named(*arguments.name)
    if arguments.json:
        print(json.dumps([asdict(metric) for metric in named], indent=1))
    elif named:
        for table in (_steps(named.of_job()), _instances(named.of_instances())):
            for line in table:
                console.print(Text(line), soft_wrap=True)
    else:
        console.print(Text(_nothing(arguments, job, everything, chosen)), soft_wrap=True)


def _steps(metrics: Metrics) -> list[str]:
    """Return a row for each step; of values without one, a row for each moment."""
    rows = metrics.rows()
    columns = metrics.names
    has_steps, has_times = any(row[0] is not None for row in rows), any(row[0] is None for row in rows)
    table = [[*(["step"] if has_steps else []), *(["time"] if has_times else []), *columns]]
    for step, at_s, values in rows:
        cells = ["" if step is None else str(step)] if has_steps else []
        cells += [time.strftime("%H:%M:%S", time.localtime(at_s)) if step is None else ""] if has_times else []
        table.append([*cells, *(metric_value(values[name]) if name in values else "" for name in columns)])
    return _aligned(table) if rows else []


def _instances(metrics: Metrics) -> list[str]:
    """Return a row for each instance and name: there may be a value every few seconds."""
    values: dict[tuple[str, str], list[float]] = {}
    for metric in metrics:
        values.setdefault((metric.host, metric.name), []).append(metric.value)
    table = [["instance", "metric", "values", "mean", "most", "last"]]
    for (host, name), series in sorted(values.items()):
        figures = (sum(series) / len(series), max(series), series[-1])
        table.append([host, name, str(len(series)), *map(metric_value, figures)])
    return _aligned(table) if values else []


def _aligned(table: list[list[str]]) -> list[str]:
    """Return the rows as text; whole, however wide: it may be read by a program."""
    # Not rich's Table, which cuts what is wider than the terminal.
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]


def _nothing(arguments: Arguments, job: Job, everything: Metrics, chosen: Metrics) -> str:
    if chosen:
        return f"no metric is named {' or '.join(arguments.name)}; {job.name} has {', '.join(chosen.names)}"
    if arguments.telemetry:
        return f"no metrics of the instances of {job.name}{'' if job.done() else ' yet'}: {TELEMETRY}"
    if everything.of_instances():
        return f"no metrics but those of the instances (raysm metrics --telemetry {job.name}): {HOW}"
    return f"no metrics{'' if job.done() else ' yet'}: {HOW}"

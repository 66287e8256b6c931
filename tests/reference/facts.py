"""The pages of facts: errors, events, files, grids, ports, scenarios, variables."""

import dataclasses
import inspect
import json
import tempfile
from pathlib import Path

from raysm import errors
from raysm.bootstrap import environment
from raysm.bootstrap.variables import user_variables
from raysm.client.storage import places
from raysm.contract import events, home, names, payload, result
from raysm.contract.job_api import APIS
from raysm.contract.paths import Paths
from raysm.grid import endings, task
from raysm.grid.rows import columns
from raysm.local.scenario import Scenario
from raysm.local.server import records
from raysm.request import Ports
from tests.reference import declared
from tests.reference.docstrings import cell, code, read, table
from tests.support.bootstraps import request, write_training


def pages():
    return {
        "errors.md": _errors(),
        "events.md": _events(),
        "files.md": _files(),
        "grid.md": _grid(),
        "ports.md": _ports(),
        "scenarios.md": _scenarios(),
        "variables.md": _variables(),
    }


# Errors


def _tree(kind, depth=0):
    others = [base.__name__ for base in kind.__bases__ if not issubclass(base, errors.RaysmError)]
    name = f"{kind.__name__} ({others[0]})" if others and depth else kind.__name__
    yield f"{'    ' * depth}{name:<{44 - 4 * depth}}{inspect.getdoc(kind).splitlines()[0]}"
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below, depth + 1)


def _errors():
    tree = "\n".join(_tree(errors.RaysmError))
    parts = [
        "# Errors",
        "Every error that raysm raises, as one tree. All are in `raysm.errors`; `raysm.RaysmError`, `raysm.JobFailed` "
        "and `raysm.JobStopped` are there by these short names too.",
        f"```text\n{tree}\n```",
        "A message says what was wrong, the value, and what to do. At the command line it is one line, and the exit "
        "status is that of [the command](commands.md#exit-status).",
        "## What they carry",
    ]
    for name, item in sorted(inspect.getmembers(errors, inspect.isclass)):
        attributes = read(item).entries.get("Attributes", {})
        if attributes:
            rows = [[code(attribute), cell(text)] for attribute, text in attributes.items()]
            parts += [f"### {name}", read(item).text, table(["attribute", "meaning"], rows)]
    return _joined(parts)


# Events


def _events():
    example = events.line(events.Metric(name="loss", value=0.25, step=3, time_s=1_790_000_000.0))
    parts = [
        "# Events",
        "What a job says of itself while it runs: one JSON object on one line of its log, so that it leaves the "
        "instance on every kind of service. `job.events()` reads them, and `job.progress()` and `job.metrics()` are "
        "made of them.",
        f"```json\n{example}\n```",
        "`raysm` is the format's version, `kind` says which of these it is. A line that is none of them is one of "
        "the user's.",
    ]
    for event in (events.State, events.Progress, events.Metric, events.Trial):
        rows = [[code(item.name), code(item.type), cell(item.meaning)] for item in declared.fields(event)]
        parts += [f"## {event.kind}", read(event).text, table(["key", "type", "meaning"], rows)]
    return _joined(parts)


# Files


def _files():
    training, processing = (Paths(api=api) for api in APIS)
    rows = [
        _in_an_instance(getattr(training, name), getattr(processing, name), cell(read(item.fget).text))
        for name, item in vars(Paths).items()
        if isinstance(item, property)
    ]
    parts = [
        "# Files",
        "Where everything of a job lies: in an instance, in its result, in the payload, in the bucket, on this "
        "machine.",
        "## In an instance",
        table(["in a Training job", "in a Processing job", "what it is"], rows),
        "A channel NAME is the folder "
        f"`{training.channel('NAME')}`, in a Processing job `{processing.channel('NAME')}`. "
        "On a laptop another folder may stand in place of `/opt/ml`: user code finds all of it by "
        "[variables](variables.md).",
        "## In a result",
        table(["file", "what it is"], [[code(_text(item)), cell(item.meaning)] for item in _named_files()]),
        "### manifest.json",
        read(result.Manifest).text,
        _fields(result.Manifest),
        "Each of its `files`:",
        _fields(result.ResultFile),
        "### training.json",
        _fields(result.Measured),
        "## In the payload",
        read(payload).text,
        "## In the bucket",
        read(places).text,
        "## On this machine",
        read(home).text,
        read(records).text,
    ]
    return _joined(parts)


def _in_an_instance(training, processing, meaning):
    """Return a row; a file that only one of the two kinds of jobs has is told so by its docstring."""
    only = {kind: f" ({kind} only)" in meaning for kind in ("training", "processing")}
    for kind in only:
        meaning = meaning.replace(f" ({kind} only)", "")
    return ["" if only["processing"] else code(training), "" if only["training"] else code(processing), meaning]


def _named_files():
    shown = (result.MANIFEST, result.MARK, result.VALUE, result.MODEL_FILE, result.TRAINING)
    return [item for item in declared.constants(result) if getattr(result, item.name) in shown]


def _text(item):
    return getattr(result, item.name)


def _fields(cls):
    return table(
        ["key", "type", "meaning"],
        [[code(item.name), code(item.type), cell(item.meaning)] for item in declared.fields(cls)],
    )


# Grids


def _grid():
    parts = [
        "# Grid",
        "The columns of a grid's rows, its rules, its states, and how a try of a row ends. How to run one: "
        "[run a grid](../how-to/run-a-grid.md). The [commands](commands.md#raysm-grid-run) and the "
        "[Python](api/grids.md) have pages of their own.",
        "## Columns of a row",
        table(["column", "what it says"], [[code(name), cell(each.summary)] for name, each in columns.COLUMNS.items()]),
        "A column that begins with "
        + ", ".join(f"`{family}_`" for family in columns.FAMILIES)
        + " is a channel, a channel by its manifest, a variable or a tag: `input_data` is the channel `data`. Every "
        "other column is a parameter. It replaces `{its name}` in the arguments; a parameter that no argument names is "
        "a hyperparameter.",
        "## Rules",
        table(
            ["rule", "default", "meaning"],
            [[code(item.name), code(item.value), cell(item.meaning)] for item in declared.fields(task.Rules)],
        ),
        "## States",
        "Each row has one of these states (`raysm grid rows NAME --state STATE`):",
        _states(task.TaskState),
        "Each try of a row is a job, and has one of these:",
        _states(task.AttemptState),
        "A grid is `open`; `paused`, because its first rows failed for one reason (`raysm grid run … --go-on` goes on "
        "all the same) or because its budget allows no more; `stopping`; or `closed`, when none of its rows can go on.",
        "## How a try ends",
        "The service's own words decide it. A row that waits again goes elsewhere, or later; only some endings use one "
        "of its `retries`.",
        table(
            ["end", "the row then", "uses a retry", "what to do"],
            [
                [code(each.name), code(str(each.then)), "yes" if each.uses_retry else "", cell(each.advice)]
                for each in endings.ENDINGS.values()
            ],
        ),
        "### Errors that are not retried",
        "A row is not retried if its script did not accept its arguments (argparse), or if the reason of its failure "
        "begins with one of these exceptions, of any rank:",
        ", ".join(map(code, endings.DETERMINISTIC)) + ".",
        "Every other failure of a program uses one of its `retries`: another exception, an exit status, a signal.",
    ]
    return _joined(parts)


def _states(cls):
    rows = [[code(item.value.strip("'")), cell(item.meaning)] for item in declared.fields(cls)]
    return table(["state", "meaning"], rows)


# Ports


def _ports():
    rows = []
    for item in declared.fields(Ports):
        where, _, meaning = item.meaning.partition(": ")
        rows.append([code(item.name), item.value, where.lower(), cell(meaning)])
    return _joined(
        [
            "# Ports",
            "What a cluster listens on: fixed, so that security groups can name it, and set by `raysm.Ports`.",
            table(["field", "port", "on", "what"], rows),
            "Instances of kind `process` share one address, and choose free ports. Who can reach what, and with which "
            "secret, is in [Security](../explanation/security.md).",
        ]
    )


# Scenarios


def _scenarios():
    parts = [
        "# Scenarios",
        "What the embedded SageMaker does to jobs as AWS does, and can be told to: a file in TOML, a table for each of "
        "these, for `raysm local up --scenario FILE` ([how](../how-to/try-what-aws-does.md)). What a file does not "
        "name is as by default.",
        "`seed`, beside the tables: " + next(item.meaning for item in declared.fields(Scenario) if item.name == "seed"),
    ]
    for table_of in dataclasses.fields(Scenario()):
        tables = type(getattr(Scenario(), table_of.name))
        if not dataclasses.is_dataclass(tables):
            continue
        rows = [
            [code(item.name), code(item.type), code(item.value), cell(item.meaning)] for item in declared.fields(tables)
        ]
        parts += [f"## {table_of.name}", read(tables).text, table(["switch", "type", "default", "meaning"], rows)]
    return _joined(parts)


# Variables

BY_USERS = (names.MEASURE, home.VARIABLE)
"""Variables that a user may set; the others are set by who starts an instance."""


def _variables():
    own = [item for item in declared.constants(names) if item.name.isupper()]
    variables = [item for item in own if getattr(names, item.name).isupper()]
    labels = [item for item in own if "/" in getattr(names, item.name)]
    told = (names.STATE, names.FAILURE_RECORD)
    set_by_starter = [item for item in variables if getattr(names, item.name) not in (*BY_USERS, *told)]
    return _joined(
        [
            "# Variables and labels",
            "The environment variables that user code is told, those that a user may set, and the labels of Ray's "
            "nodes.",
            "## Told to user code",
            "Every script and function finds SageMaker's variables, with values like these of the second of two "
            "instances, and those of raysm.",
            table(["variable", "for example"], [[code(name), code(value)] for name, value in _example().items()]),
            _meanings([item for item in variables if getattr(names, item.name) == names.STATE]),
            "A value of more than 128 KiB is left out: the system would refuse to start the process.",
            "## Set by a user",
            table(
                ["variable", "where", "meaning"],
                [
                    [
                        code(home.VARIABLE),
                        "on this machine",
                        "the folder of the embedded SageMaker; default `~/.raysm`",
                    ],
                    *(
                        [code(names.MEASURE), "in the job's environment", cell(item.meaning)]
                        for item in variables
                        if item.name == "MEASURE"
                    ),
                ],
            ),
            "## Set by whoever starts an instance",
            "The embedded SageMaker sets these; whoever starts instances in another way may.",
            _meanings(set_by_starter),
            "## Labels of a node",
            "Each node of Ray says where it is by labels, and by the custom resources `host:algo-1`, `group:…` and "
            "`instance_type:…`.",
            table(["label", "meaning"], [[code(getattr(names, item.name)), _label(item)] for item in labels]),
        ]
    )


def _label(item):
    return cell(item.meaning.removeprefix("Ray label of a node: "))


def _meanings(items):
    rows = [[code(getattr(names, item.name)), cell(item.meaning)] for item in items]
    return table(["variable", "meaning"], rows)


def _example():
    """Return what user code is told on ``algo-2`` of two instances."""
    with tempfile.TemporaryDirectory() as base:
        paths = write_training(
            Path(base), "algo-2", ["algo-1", "algo-2"], hyperparameters={"lr": "0.1"}, network_interface_name="eth0"
        )
        paths.input_data_config.write_text(json.dumps({"raysm": {}, "train": {}}))
        found = user_variables(
            environment.read({"SAGEMAKER_BASE_DIR": base, "TRAINING_JOB_NAME": "a-job"}),
            request(2, script="train.py", args=("--epochs", "10")),
            Path("/opt/ml/input/data/raysm/source"),
            cpus=4,
            gpus=1,
        )
        texts = {name: value.replace(str(paths.base), "/opt/ml") for name, value in sorted(found.items())}
    return {name: value if len(value) <= 60 else value[:57] + "…" for name, value in texts.items()}


def _joined(parts):
    return "\n\n".join(part for part in parts if part) + "\n"

"""The arguments of ``raysm grid`` and ``raysm quotas``."""

import argparse
from pathlib import Path
from typing import Any

from raysm.cli.options import COMMON, add_flags, add_reading, add_target
from raysm.cli.parser import Family, add, add_command, names
from raysm.core.protocol.names import CONTROLLER_DEFINITION

REQUEST_VERBS = {
    "plan": "show a grid's places, costs and hours, and rows that cannot run; sends nothing",
    "run": "run a job for each row until all are done; the same command continues a grid",
    "row": (
        "send the job of one row, by its index, in a child of an AWS Batch array; "
        "a retry sends nothing twice"
    ),
}

GRID_VERBS = {
    "status": "show a grid's states by region, costs, blocked places and time left",
    "watch": "update the status until the grid is done",
    "list": "list the grids of this machine with their states",
    "rows": "list a grid's rows with state, number of jobs, last job and reason",
    "result": "fetch the result of one row, by its key",
    "report": "write the status as one HTML file that needs no network",
    "table": (
        "write the result tables of all rows (predictions, "
        "for example) to one Parquet file with the rows' keys"
    ),
    "stop": "stop a grid and its open jobs; no further job is sent",
    "retry": "queue a grid's failed and stopped rows again, for the next run",
    "extend": (
        "read a grid's source again: "
        "new rows are added, and rows that are not done take corrected values"
    ),
}

EXAMPLES = {
    "plan": "raysm grid plan train.py --rows drives.csv --regions us-east-1,eu-west-1 -- --lr {lr}",
    "run": (
        "raysm grid run train.py --rows drives.csv --max-cost 500 -- --lr {lr}\n"
        "# the rows of a query, in the regions of their data\n"
        'raysm grid run train.py --sql sqlite:///drives.db "SELECT name AS key, '
        'uri AS input_data FROM drives" --max-cost 500'
    ),
    "row": "raysm grid row train.py --rows drives.csv --index 0 --wait",
    "status": "raysm grid status drives",
    "rows": (
        "raysm grid rows drives --state failed\n"
        "# an AWS Batch array: images per second of all jobs that run\n"
        "raysm grid rows drives --rate images_per_s --regions us-west-2,eu-central-1"
    ),
    "report": "raysm grid report drives --html drives.html",
    "table": "raysm grid table drives --output predictions.parquet",
}

HINTS = {
    "--input": (
        "the rows name the inputs: a column input_NAME holds the URI of each row's channel NAME"
    )
}
"""What to do instead of an option that other commands have."""

NAME_OPTIONAL = ("status", "watch")
"""Verbs whose NAME is optional if there is only one grid."""

OWN = (
    "cluster.count",
    "cluster.instance_type",
    "limits.max_cost",
    "limits.price_per_hour",
    "limits.spot",
    "name",
)
"""Paths of job options that grids replace by their own."""


def add_grid(commands: Any) -> None:
    grid = add_command(
        commands,
        "grid",
        "run a job for each row of a file or query, over regions",
        run="raysm.features.grid.command:run",
        is_scripted=True,
        family=Family.ROWS,
    )
    grid.set_defaults(hints=HINTS)
    verbs = grid.add_subparsers(
        dest="verb", required=True, metavar="|".join((*REQUEST_VERBS, "take-up", *GRID_VERBS))
    )
    for name in REQUEST_VERBS:
        _add_request_verb(verbs, name)
    _add_take_up(verbs)
    for name in GRID_VERBS:
        _add_grid_verb(verbs, name)


def _add_request_verb(verbs: Any, name: str) -> None:
    usage = (
        f"raysm grid {name} FILE.toml|SCRIPT [options] [-- ARGUMENTS OF THE "
        "SCRIPT, as in --lr {lr}]"
    )
    verb = add_command(verbs, name, REQUEST_VERBS[name], usage=usage, examples=EXAMPLES[name])
    verb.set_defaults(is_scripted=True)
    _add_request(verb)
    if name == "row":
        child = verb.add_argument_group("child")
        index = "index of the child, from 0: $AWS_BATCH_JOB_ARRAY_INDEX"
        add(child, "--index N", index, type=_index, required=True)
        add(child, "--per-child K", "rows of each child (default 1)", type=int, default=1)
        add(child, "--wait", "wait until the jobs end; the exit status is 0 if all are done")
    if name == "run":
        go_on = "continue a grid that paused because its first rows failed for one reason"
        add(verb, "--go-on", go_on)
        _add_controller(verb)
        written = "write the states of the rows to the database of the query"
        add(verb, "--write-back", written, default=None)


def _add_take_up(verbs: Any) -> None:
    text = "run to its end a grid that was handed over; the job of --via batch runs this"
    verb = add_command(verbs, "take-up", text)
    verb.set_defaults(is_scripted=False)
    add(verb, "URI", "URI of the handover")
    add_target(verb)


def _add_grid_verb(verbs: Any, name: str) -> None:
    verb = add_command(verbs, name, GRID_VERBS[name], examples=EXAMPLES.get(name, ""))
    # Only scripts have arguments after --.
    verb.set_defaults(is_scripted=False)
    if name in NAME_OPTIONAL:
        note = "name of the grid; not needed if there is only one"
        verb.add_argument("grid", metavar="NAME", nargs="?", help=note)
    elif name != "list":
        verb.add_argument("grid", metavar="NAME", help="name of the grid")
    if name == "result":
        add(verb, "KEY", "key of the row")
        output = "folder for its files (default: leave local files, download others)"
        add(verb, "--output DIR", output, type=Path)
    if name == "rows":
        add(verb, "--state STATE", "only rows in this state: waiting, placed, done, failed, …")
        regions = (
            "regions to ask about an AWS Batch array, which keeps no file here (default: --region)"
        )
        add(verb, "--regions A,B", regions, type=names, default=[])
        rate = "for an AWS Batch array: the last value of this metric of each job, and their sum"
        add(verb, "--rate METRIC", rate)
        add_target(verb)
    if name == "report":
        add(verb, "--html FILE", "the file (default: NAME.html)", type=Path)
    if name == "table":
        add(verb, "--output FILE", "the file (default: NAME.parquet)", type=Path)
        add(verb, "--column NAME", "name of the column with the rows' keys (default key)")
        add(verb, "--partial", "leave out rows that are not done")
    if name == "extend":
        note = "new rows; by default the grid's own source is read again"
        _add_rows(verb.add_argument_group("rows", note))
    add(verb, "--json", "as JSON")


def add_quotas(commands: Any) -> None:
    command = add_command(
        commands,
        "quotas",
        "list how many instances the account may run by region and type, with their hourly prices",
        run="raysm.features.grid.quotas_command:run",
        family=Family.SETUP,
        examples="raysm quotas ml.g5.2xlarge --on aws --regions us-east-1,eu-west-1",
    )
    add(command, "TYPE", "instance types (default: all with a quota above 0)", nargs="*")
    add(command, "--regions A,B", "regions to list (default: --region)", type=names, default=[])
    add_reading(command)


def _add_controller(verb: Any) -> None:
    job = verb.add_argument_group("controller", "run the grid by AWS Batch instead of this process")
    text = (
        "run the grid in a job of AWS Batch, without this machine; "
        "Batch starts it again if its host is lost"
    )
    job.add_argument("--via", choices=("batch",), help=text)
    add(job, "--job-queue NAME", "the job queue, of EC2 or Fargate; required with --via batch")
    text = (
        f"the job definition (default {CONTROLLER_DEFINITION}); with --job-image raysm registers it"
    )
    add(job, "--job-definition NAME[:REVISION]", text)
    add(job, "--job-image URI", "an image with raysm, for example of containers/Dockerfile.batch")
    add(job, "--job-role ARN", "the role with which the controller sends jobs; needs --job-image")
    add(
        job,
        "--execution-role ARN",
        "the role with which Fargate pulls the image; omit for a queue of EC2",
    )
    add(
        job,
        "--assign-public-ip",
        "give the controller a public address, for public subnets of Fargate",
        default=None,
    )


def _index(text: str) -> int:
    if not text.isdecimal():
        # The variable is empty outside an array.
        raise argparse.ArgumentTypeError(
            f"--index takes a whole number from 0, got {text!r}; "
            "AWS_BATCH_JOB_ARRAY_INDEX is set only in an array job"
        )
    return int(text)


def _add_request(verb: Any) -> None:
    verb.add_argument(
        "what", metavar="FILE.toml|SCRIPT", help="a grid's file, or the script of all rows"
    )
    _add_rows(verb.add_argument_group("rows"))
    places = verb.add_argument_group("places")
    add(
        places,
        "--regions A,B",
        "where rows may run (default: the regions of their data)",
        type=names,
        default=[],
    )
    add(
        places,
        "--instance-type A,B",
        "instance types, the best first; needed on AWS",
        type=names,
        default=[],
    )
    add(
        places,
        "--instances N",
        "instances of each job, unless its row says otherwise (default 1)",
        type=int,
    )
    add(places, "--spot", "use spot capacity, which can be interrupted", default=None)
    add(
        places,
        "--any-type",
        "let SageMaker choose the type of each job from these; not with --spot",
        default=None,
    )
    add(places, "--move-data", "allow rows to run in another region than their data", default=None)
    rules = verb.add_argument_group("rules")
    rules.add_argument("--name", help="name of the grid (default: the file's or script's)")
    add(rules, "--max-cost USD", "the most that the grid's jobs may cost together", type=float)
    # The older name of --max-cost.
    rules.add_argument(
        "--budget", dest="max_cost", metavar="USD", type=float, help=argparse.SUPPRESS
    )
    add(rules, "--parallel N", "jobs at a time (default 200)", type=int)
    text = (
        "metric that jobs report as work per second, "
        "images_per_s for example; the grid adds them up"
    )
    add(rules, "--rate METRIC", text)
    text = "retries of a row after an error of its program that may be temporary (default 2)"
    add(rules, "--retries N", text, type=int)
    add_flags(verb, [flag for flag in COMMON if flag.path not in OWN])
    add_target(verb)
    add(verb, "--json", "as JSON")


def _add_rows(rows: Any) -> None:
    source = rows.add_mutually_exclusive_group()
    add(source, "--rows FILE", ".csv, .tsv, .txt, .jsonl or .parquet; a path or s3://…")
    text = "rows of a query: sqlite:///campaigns.db, duckdb://, postgresql://…, env:NAME"
    source.add_argument("--sql", nargs=2, metavar=("DATABASE", "QUERY"), help=text)
    text = "column names, as region,input_data, for a .csv, .tsv or .txt without a header"
    add(rows, "--columns A,B", text, type=names, default=[])
    add(
        rows,
        "--param NAME=VALUE",
        "value of :NAME in the query; repeatable",
        action="append",
        default=[],
    )
    add(rows, "--max-rows N", "maximum number of rows (default 10000)", type=int)

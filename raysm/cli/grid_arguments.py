"""The arguments of ``raysm grid``."""

import argparse
from pathlib import Path
from typing import Any

from raysm.cli.machine_arguments import names
from raysm.cli.options import COMMON, add_flags, add_target
from raysm.cli.parser import add_command
from raysm.grid.batch_job.controller_job import DEFINITION

ASKING = {
    "plan": "show a grid's places, costs and hours, and rows that cannot run; sends nothing",
    "run": "run a job for each row until all are done; the same command continues a grid",
    "row": "send the job of one row, by its index, in a child of an AWS Batch array; a retry sends nothing twice",
}

NAMING = {
    "status": "show a grid's states by region, costs, blocked places and time left",
    "watch": "update the status until the grid is done",
    "list": "list the grids of this machine with their states",
    "rows": "list a grid's rows with state, number of jobs, last job and reason",
    "result": "fetch the result of one row, by its key",
    "report": "write the status as one HTML file that needs no network",
    "table": "write the result tables of all rows (predictions, for example) to one Parquet file with the rows' keys",
    "stop": "stop a grid and its open jobs; no further job is sent",
    "retry": "queue a grid's failed rows again, for the next run",
    "extend": "read a grid's source again: new rows are added, and rows that are not done take corrected values",
}

UNNAMED = ("status", "watch")
"""Verbs whose NAME is optional if there is only one grid."""

OWN = ("cluster.count", "cluster.instance_type", "limits.spot", "name")
"""Paths of job options that grids replace by their own."""


def add_grid(commands: Any) -> None:
    grid = add_command(
        commands,
        "grid",
        "run a job for each row of a file or query, over regions",
        run="raysm.cli.grid:run",
        is_scripted=True,
    )
    verbs = grid.add_subparsers(dest="verb", required=True, metavar="|".join((*ASKING, "take-up", *NAMING)))
    for name, text in ASKING.items():
        verb = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            usage=f"raysm grid {name} FILE.toml|SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT, as in --lr {{lr}}]",
            allow_abbrev=False,
        )
        verb.set_defaults(is_scripted=True)
        _add_request(verb)
        if name == "row":
            _add_index(verb)
        if name == "run":
            verb.add_argument(
                "--go-on",
                action="store_true",
                help="continue a grid that paused because its first rows failed for one reason",
            )
            _add_controller(verb)
            verb.add_argument(
                "--write-back",
                action="store_true",
                default=None,
                help="write the states of the rows to the database of the query",
            )
    text = "run a grid that was handed over until it is done; the job of --via batch runs this"
    verb = verbs.add_parser("take-up", help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    verb.set_defaults(is_scripted=False)
    verb.add_argument("uri", metavar="URI", help="URI of the handover")
    add_target(verb)
    for name, text in NAMING.items():
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        # Only scripts have arguments after --.
        verb.set_defaults(is_scripted=False)
        if name != "list":
            verb.add_argument("grid", metavar="NAME", nargs="?" if name in UNNAMED else None, help="name of the grid")
        if name == "result":
            verb.add_argument("key", metavar="KEY", help="key of the row")
            verb.add_argument(
                "--output",
                type=Path,
                metavar="DIR",
                help="folder for its files (default: leave local files, download others)",
            )
        if name == "rows":
            verb.add_argument(
                "--state", metavar="STATE", help="only rows in this state: waiting, placed, done, failed, …"
            )
        if name == "report":
            verb.add_argument("--html", type=Path, metavar="FILE", help="the file (default: NAME.html)")
        if name == "table":
            verb.add_argument("--output", type=Path, metavar="FILE", help="the file (default: NAME.parquet)")
            verb.add_argument("--column", metavar="NAME", help="name of the column with the rows' keys (default key)")
            verb.add_argument("--partial", action="store_true", help="leave out rows that are not done")
        if name == "extend":
            _add_rows(verb.add_argument_group("rows", "new rows; by default the grid's own source is read again"))
        verb.add_argument("--json", action="store_true", help="as JSON")


def _add_controller(verb: Any) -> None:
    job = verb.add_argument_group("controller", "run the grid by AWS Batch instead of this process")
    job.add_argument(
        "--via",
        choices=("batch",),
        help="run the grid in a job of AWS Batch, without this machine; Batch starts it again if its host is lost",
    )
    job.add_argument("--job-queue", metavar="NAME", help="the job queue, of EC2 or Fargate; required with --via batch")
    job.add_argument(
        "--job-definition",
        metavar="NAME[:REVISION]",
        help=f"the job definition (default {DEFINITION}); with --job-image raysm registers it",
    )
    job.add_argument(
        "--job-image", metavar="URI", help="an image with raysm, for example of containers/Dockerfile.batch"
    )
    job.add_argument(
        "--job-role", metavar="ARN", help="the role with which the controller sends jobs; needs --job-image"
    )
    job.add_argument(
        "--execution-role", metavar="ARN", help="the role with which Fargate pulls the image; omit for a queue of EC2"
    )
    job.add_argument(
        "--assign-public-ip",
        action="store_true",
        default=None,
        help="give the controller a public address, for public subnets of Fargate",
    )


def _add_index(verb: Any) -> None:
    child = verb.add_argument_group("child")
    child.add_argument(
        "--index",
        type=_index,
        required=True,
        metavar="N",
        help="index of the child, from 0: $AWS_BATCH_JOB_ARRAY_INDEX",
    )
    child.add_argument("--per-child", type=int, default=1, metavar="K", help="rows of each child (default 1)")
    child.add_argument(
        "--wait", action="store_true", help="wait until the jobs end; the exit status is 0 if all are done"
    )


def _index(text: str) -> int:
    if not text.isdecimal():
        # The variable is empty outside an array.
        raise argparse.ArgumentTypeError(
            f"--index takes a whole number from 0, got {text!r}; AWS_BATCH_JOB_ARRAY_INDEX is set only in an array job"
        )
    return int(text)


def _add_request(verb: Any) -> None:
    verb.add_argument("what", metavar="FILE.toml|SCRIPT", help="a grid's file, or the script of all rows")
    _add_rows(verb.add_argument_group("rows"))
    places = verb.add_argument_group("places")
    places.add_argument(
        "--regions",
        type=names,
        default=[],
        metavar="A,B",
        help="where rows may run (default: the regions of their data)",
    )
    places.add_argument(
        "--instance-type", type=names, default=[], metavar="A,B", help="instance types, the best first; needed on AWS"
    )
    places.add_argument(
        "--instances", type=int, metavar="N", help="instances of each job, unless its row says otherwise (default 1)"
    )
    places.add_argument("--spot", action="store_true", default=None, help="use spot capacity, which can be interrupted")
    places.add_argument(
        "--any-type",
        action="store_true",
        default=None,
        help="let SageMaker choose any of the types in one job; not with --spot",
    )
    places.add_argument(
        "--move-data", action="store_true", default=None, help="allow rows to run in another region than their data"
    )
    rules = verb.add_argument_group("rules")
    rules.add_argument("--name", help="name of the grid (default: the file's or script's)")
    rules.add_argument("--budget", type=float, metavar="USD", help="dollars that the grid never exceeds")
    rules.add_argument("--parallel", type=int, metavar="N", help="jobs at a time (default 200)")
    rules.add_argument(
        "--rate",
        metavar="METRIC",
        help="metric that jobs report as work per second, images_per_s for example; the grid adds them up",
    )
    rules.add_argument(
        "--retries",
        type=int,
        metavar="N",
        help="retries of a row whose program fails with an error that may pass (default 2)",
    )
    add_flags(verb, [flag for flag in COMMON if flag.path not in OWN])
    add_target(verb)
    verb.add_argument("--json", action="store_true", help="as JSON")


def _add_rows(rows: Any) -> None:
    source = rows.add_mutually_exclusive_group()
    source.add_argument("--rows", metavar="FILE", help=".csv, .tsv, .jsonl or .parquet; a path or s3://…")
    source.add_argument(
        "--sql",
        nargs=2,
        metavar=("DATABASE", "QUERY"),
        help="rows of a query: sqlite:///campaigns.db, duckdb://, postgresql://…, env:NAME",
    )
    rows.add_argument(
        "--columns",
        type=names,
        default=[],
        metavar="A,B",
        help="names of the columns of a .csv, .tsv or .txt whose first line is a row: region,input_data",
    )
    rows.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="value of :NAME in the query; repeatable"
    )
    rows.add_argument("--max-rows", type=int, metavar="N", help="maximum number of rows (default 10000)")

"""The arguments of the command line. Pure: text in, a namespace out; nothing is read, nothing started."""

import argparse
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from raysm import __version__
from raysm.cli.flags import CHANGE, COMMON, SCRIPT, SIMILARITY, SWEEP, TARGET, TRAIN, WORKLOADS, add_flags
from raysm.cli.market_arguments import add_prices
from raysm.cli.parser import BEHIND, SCRIPTED, Parser, add_command

__all__ = ["Arguments", "build_parser", "parse"]

Arguments = argparse.Namespace

EPILOG = """\
examples:
  raysm demo
  raysm similarity vectors.npy --top-k 10 --instances 2 --output out/
  raysm run tune.py --instances 3 -- --trials 10
  raysm train main.py --instances 2 -- --epochs 10
  raysm sweep train.py --space lr=loguniform:1e-4:1e-1 --metric loss --trials 50 -- --epochs 3
  raysm run train.py --on aws --role arn:aws:iam::…:role/… --image … --instance-type ml.c5.4xlarge --instances 10
  raysm jobs; raysm logs -f NAME; raysm result NAME --output out/
"""

KEPT = 3
"""Flags of the similarity, the first ones: exactly one of them says what is kept."""


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line; what stands behind the first ``--`` goes to the user's script verbatim.

    Raises:
        SystemExit: With status 2 and a message on stderr where the arguments are wrong, 0 for ``--help``.
    """
    own, theirs = _split(list(argv))
    parser = build_parser()
    # parse_args would refuse these itself, without the hint at what a script's arguments are given behind.
    arguments, unread = parser.parse_known_args(own)
    if unread:
        hint = f" ({BEHIND})" if arguments.command in SCRIPTED else ""
        parser.error(f"unrecognized arguments: {' '.join(unread)}{hint}")
    if theirs and arguments.command not in SCRIPTED:
        parser.error(f"{arguments.command} takes nothing behind --, got {' '.join(theirs)}")
    arguments.script_args = tuple(theirs)
    _check_workload(arguments)
    return arguments


def _check_workload(arguments: Arguments) -> None:
    """Refuse a command without its workload, where no request brings one: argparse knows only what is always needed."""
    lacks = None
    if arguments.command == "submit" and arguments.request is None:
        lacks = "the following arguments are required: --request"
    elif arguments.command in WORKLOADS and arguments.request is None:
        name = "matrix" if arguments.command == "similarity" else "script"
        if getattr(arguments, name) is None:
            lacks = f"the following arguments are required: {name.upper()}"
        elif name == "matrix" and all(getattr(arguments, flag.dest) is None for flag in SIMILARITY[:KEPT]):
            lacks = f"one of the arguments {' '.join(flag.name for flag in SIMILARITY[:KEPT])} is required"
        elif arguments.command == "sweep" and (arguments.space is None or arguments.metric is None):
            lacks = "a sweep needs --space NAME=RANGE and --metric NAME"
    if lacks is not None:
        arguments.refuse(lacks)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    # argparse would take the -- away, and read what stands behind it as arguments of its own.
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="raysm",
        description="One Ray cluster, one workload and one gathered result, on the instances of a SageMaker job "
        "or on this machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"raysm {__version__}")
    # Required, since argparse by itself lets a command line without a command pass.
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_similarity(commands)
    _add_run(commands)
    _add_train(commands)
    _add_sweep(commands)
    _add_submit(commands)
    _add_config(commands)
    _add_about_jobs(commands)
    _add_entering(commands)
    _add_sessions(commands)
    _add_local(commands)
    _add_image(commands)
    _add_doctor(commands)
    add_prices(commands)
    return parser


def _add_demo(commands: Any) -> None:
    command = add_command(commands, "demo", "a whole job on this machine, on data that raysm carries")
    command.add_argument("--instances", type=int, default=2, metavar="N", help="number of instances (default 2)")
    command.add_argument("--output", type=Path, metavar="DIR", help="where the result goes (default: where it lies)")


def _add_similarity(commands: Any) -> None:
    command = add_command(
        commands, "similarity", "the exact cosine similarity of every row of a matrix with every other row"
    )
    command.add_argument(
        "matrix",
        metavar="MATRIX",
        # A request's file may name it instead.
        nargs="?",
        help=".npy, .npz, .csv, .csv.gz, .parquet, or a folder of them; a path or s3://…",
    )
    # Not required here, since a request's file may choose it: ``_check_workload`` looks at both.
    kept = command.add_mutually_exclusive_group()
    add_flags(kept, SIMILARITY[:KEPT], "similarity")
    add_flags(command, SIMILARITY[KEPT:], "similarity")
    command.add_argument(
        "--sharded", action="store_true", help="give each instance its share of MATRIX's files alone (ShardedByS3Key)"
    )
    command.add_argument(
        "--estimate", action="store_true", help="measure a few tiles here, print the time and money, and send nothing"
    )
    command.add_argument(
        "--price-per-hour",
        type=float,
        metavar="USD",
        help="of one instance, for --estimate (default: a dated table of a few regions)",
    )
    _add_submitting(command)


def _add_run(commands: Any) -> None:
    command = add_command(
        commands,
        "run",
        "a Python script, run on the head of the formed cluster; ray.init() joins it",
        # argparse cannot know of the part behind --, which it never sees.
        usage="raysm run SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]",
    )
    _add_script(command)
    add_flags(command, SCRIPT, "run")
    _add_submitting(command)


def _add_train(commands: Any) -> None:
    command = add_command(
        commands,
        "train",
        "a script written for torchrun, as it is, on all instances; rank 0's model is the result",
        usage="raysm train SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]",
    )
    _add_script(command)
    add_flags(command, TRAIN, "train")
    _add_submitting(command)


def _add_sweep(commands: Any) -> None:
    command = add_command(
        commands,
        "sweep",
        "many trials of a script, each with other parameters as --NAME VALUE, on one cluster; the best is the result",
        usage="raysm sweep SCRIPT --space NAME=RANGE --metric NAME [options] [-- OTHER ARGUMENTS OF THE SCRIPT]",
    )
    _add_script(command)
    add_flags(command, SWEEP, "sweep")
    _add_submitting(command)


def _add_submit(commands: Any) -> None:
    command = add_command(
        commands,
        "submit",
        "a whole request of a file, whatever its workload: --request job.json",
        # argparse would show --request as optional, which it is for the other commands.
        usage="raysm submit --request FILE [options]",
    )
    _add_submitting(command)


def _add_config(commands: Any) -> None:
    command = add_command(commands, "config", "the options that apply here, and where each of them comes from")
    add_flags(command, COMMON)
    _add_files(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    _add_target(command)


def _add_script(command: argparse.ArgumentParser) -> None:
    # Not required, as MATRIX is not: a request's file may name it.
    command.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="the script; inside --source-dir where that is given"
    )


def _add_submitting(command: argparse.ArgumentParser) -> None:
    add_flags(command, COMMON)
    command.add_argument("--output", type=Path, metavar="DIR", help="where the result goes (default: where it lies)")
    command.add_argument("--detach", action="store_true", help="print the job's name and leave it to itself")
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="print the exact call and send nothing; with --json the request, for --request",
    )
    command.add_argument("--json", action="store_true", help="the result as JSON (with --detach: the job)")
    _add_files(command)
    _add_target(command)


def _add_files(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("options from files")
    group.add_argument(
        "--request", type=Path, metavar="FILE", help="a whole request, .json or .toml; flags win over it"
    )
    _add_change(group)


def _add_change(command: Any) -> None:
    command.add_argument(
        CHANGE, action="append", metavar="OPTION=VALUE", help="any option, as in security.isolation=true; repeatable"
    )


def _add_target(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("where")
    add_flags(group, TARGET)
    _add_files_of_project(group)


def _add_files_of_project(group: Any) -> None:
    group.add_argument(
        "--project-file",
        type=Path,
        metavar="FILE",
        help="options for all jobs of a project (default: the nearest raysm.toml, here or above)",
    )
    group.add_argument("--config-profile", metavar="NAME", help="one of the project file's profiles, [profile.NAME.…]")


def _add_about_jobs(commands: Any) -> None:
    jobs = add_command(commands, "jobs", "the latest jobs")
    jobs.add_argument("--contains", metavar="TEXT", help="only those with this in their names")
    jobs.add_argument("--limit", type=int, default=20, help="at most so many (default 20)")
    jobs.add_argument("--project", help="only those of this project")
    jobs.add_argument("--task", metavar="NAME", help="only runs of this task")
    jobs.add_argument("--status", metavar="STATUS", help="only those that are so: Completed, or Failed,Stopped")
    jobs.add_argument("--since", metavar="TIME", help="only those that were sent since: 2026-11-01, 7d, 12h")
    jobs.add_argument("--trials", action="store_true", help="behind each sweep its trials, as rows of their own")
    jobs.add_argument(
        "--params",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="columns: what they were called with, lr,batch; without names all",
    )
    jobs.add_argument(
        "--metrics",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="columns: last values, loss, or loss:min, loss:max, loss:best; without names all",
    )
    jobs.add_argument("--sort", metavar="COLUMN", help="by lr, loss, cost_usd …; --sort=-auc: the highest first")
    _add_reading(jobs)
    remove = add_command(commands, "rm", "remove ended jobs of this machine: records, logs, results, checkpoints")
    remove.add_argument("jobs", metavar="JOB", nargs="+", help="a job's name")
    _add_reading(remove)
    for name, text in (
        ("status", "how a job is"),
        ("logs", "what its instances wrote"),
        ("result", "its result, brought here"),
        ("metrics", "its metrics"),
        ("dashboard", "Ray's dashboard of it, in the browser; of one that has ended, what it last showed"),
        ("stop", "stop it: user code has its grace to save its work"),
        ("token", "its token, which Ray asks for"),
        ("debug", "let those who may start SSM sessions into its instances, while it runs on AWS"),
    ):
        command = add_command(commands, name, text)
        command.add_argument("job", metavar="JOB", help="the job's name")
        if name == "logs":
            command.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
            command.add_argument("--instance", metavar="HOST", help="of one instance, algo-2")
            command.add_argument("--metrics", action="store_true", help="the latest values too, every few seconds")
        if name == "dashboard":
            command.add_argument("--no-open", action="store_true", help="print its address, and open no browser")
        if name == "debug":
            command.add_argument("--off", action="store_true", help="let nobody in any more")
        if name == "metrics":
            command.add_argument(
                "--name", action="append", default=[], metavar="NAME", help="of this name, or like val/*; repeatable"
            )
            which = command.add_mutually_exclusive_group()
            which.add_argument("--telemetry", action="store_true", help="of the instances: memory, CPU, network …")
            which.add_argument("--all", action="store_true", help="of the job and of its instances")
        if name == "result":
            # Both say how long: --no-wait is a timeout of 0.
            waiting = command.add_mutually_exclusive_group()
            waiting.add_argument("--no-wait", action="store_true", help="end with 1 at once where the job still runs")
            waiting.add_argument("--timeout", type=float, metavar="S", help="wait at most so many seconds for its end")
            command.add_argument("--output", type=Path, metavar="DIR", help="where to (default: where it lies)")
        _add_reading(command)


def _add_entering(commands: Any) -> None:
    tunnel = add_command(
        commands, "tunnel", "a port of this machine that leads to one of an instance, while its job runs"
    )
    tunnel.add_argument("job", metavar="JOB", help="the job's name")
    tunnel.add_argument("port", metavar="PORT", type=int, help="on the instance's loopback, 8265")
    tunnel.add_argument("--local", type=int, default=0, metavar="PORT", help="of this machine (default: any free one)")
    _add_instance(tunnel)
    _add_reading(tunnel)
    shell = add_command(
        commands,
        "shell",
        "a shell in an instance, or a command; its exit code becomes this one's",
        usage="raysm shell JOB [options] [-- COMMAND]",
    )
    shell.add_argument("job", metavar="JOB", help="the job's name")
    _add_instance(shell)
    _add_target(shell)


def _add_instance(command: argparse.ArgumentParser) -> None:
    # Not --on, which says whether a job is on AWS or here.
    command.add_argument("--instance", metavar="HOST", help="algo-2 (default: the head)")


def _add_reading(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="as JSON")
    _add_target(command)


def _add_sessions(commands: Any) -> None:
    session = add_command(commands, "session", "a cluster that stays, and takes calls in milliseconds")
    verbs = session.add_subparsers(dest="verb", required=True, metavar="start|list|attach|keep|close")
    for name, text in (
        ("start", "start one; it goes on when the command has ended"),
        ("list", "those that run"),
        ("attach", "how it is, and its Python at a prompt"),
        ("keep", "put off its idle end"),
        ("close", "end it, and its job"),
    ):
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        if name == "start":
            _add_start(verb)
            continue
        if name != "list":
            verb.add_argument("name", metavar="NAME", help="as it was named, or its job's name")
        if name == "keep":
            verb.add_argument("time", type=_seconds, metavar="TIME", help="for how long: 60m, 2h")
        _add_reading(verb)
    command = add_command(
        commands,
        "exec",
        "a file, run in a session's namespace",
        usage="raysm exec NAME FILE [options] [-- ARGUMENTS OF THE FILE]",
    )
    command.add_argument("name", metavar="NAME", help="of the session")
    command.add_argument("file", metavar="FILE", help="Python source")
    _add_target(command)


def _add_start(command: argparse.ArgumentParser) -> None:
    command.add_argument("--idle", type=_seconds, metavar="TIME", help="end after so long without a call (default 30m)")
    command.add_argument(
        "--idle-detached", type=_seconds, metavar="TIME", help="the same while no client is attached (default 5m)"
    )
    command.add_argument("--budget", type=float, metavar="USD", help="end when it has cost so much")
    command.add_argument(
        "--price-per-hour", type=float, metavar="USD", help="of one instance (default: a dated table of a few regions)"
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    add_flags(command, COMMON)
    _add_change(command)
    _add_target(command)


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], units.get(text[-1:])
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 30m, 2h or 1d")
    return float(int(number) * unit)


def _add_local(commands: Any) -> None:
    local = add_command(commands, "local", "the embedded SageMaker of this machine")
    verbs = local.add_subparsers(dest="verb", required=True, metavar="up|down|status|clean|interrupt")
    for name, text in (
        ("up", "start it (jobs do that by themselves)"),
        ("down", "end it; with --force its active jobs too"),
        ("status", "whether it runs, and which jobs it has"),
    ):
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == "up":
            verb.add_argument(
                "--scenario",
                metavar="FILE",
                help="what AWS does to jobs and a laptop does not, as TOML; it holds until raysm local down",
            )
        if name == "down":
            verb.add_argument("--force", action="store_true", help="also while jobs are active: they end as Failed")
        verb.add_argument("--json", action="store_true", help="as JSON")
    clean = verbs.add_parser(
        "clean",
        help="remove old jobs with what they left",
        description="Remove jobs that have ended, with their records, logs, results and checkpoints: those older than "
        "seven days where nothing else is said. What an active job reads stays, and what was brought by --output.",
        allow_abbrev=False,
    )
    # No default here: with --keep alone no age counts.
    clean.add_argument("--older-than", type=_age, metavar="AGE", help="only those that ended so long ago: 7d, 12h, 30m")
    clean.add_argument("--keep", type=int, metavar="N", help="all but the N that ended last")
    clean.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    clean.add_argument("--json", action="store_true", help="as JSON")
    interrupt = verbs.add_parser(
        "interrupt", help="interrupt a spot job, as AWS does", description="interrupt a spot job", allow_abbrev=False
    )
    interrupt.add_argument("job", metavar="JOB", help="the job's name")
    interrupt.add_argument("--json", action="store_true", help="as JSON")


def _age(text: str) -> timedelta:
    units = {"d": "days", "h": "hours", "m": "minutes"}
    number, unit = text[:-1], units.get(text[-1:])
    # int alone would take a sign, blanks and 1_000 too.
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no age; write 7d, 12h or 30m")
    return timedelta(**{unit: int(number)})


def _add_image(commands: Any) -> None:
    image = add_command(commands, "image", "container images for jobs")
    verbs = image.add_subparsers(dest="verb", required=True, metavar="build")
    build = verbs.add_parser(
        "build",
        help="build one with all that a job needs",
        description="Build an image with all that a job needs, so that its instances install nothing as they start.",
        allow_abbrev=False,
    )
    build.add_argument(
        "--base", metavar="URI", help="the image that it begins with (default: python:X.Y-slim of this Python)"
    )
    build.add_argument("--gpu", action="store_true", help="for GPUs (default base: NVIDIA's CUDA image)")
    build.add_argument(
        "--tag", metavar="NAME:TAG", help="what it is called; or a whole URI of ECR (default: raysm:VERSION-cpu)"
    )
    build.add_argument(
        "--platform", metavar="OS/ARCH", help="linux/arm64 for Graviton (default: linux/amd64 or this machine's)"
    )
    build.add_argument(
        "--push", action="store_true", help="to Amazon ECR of the account; the repository is made where it is missing"
    )
    build.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    build.add_argument("--json", action="store_true", help="what was built as JSON")
    _add_files_of_project(build)
    add_flags(build, [flag for flag in TARGET if flag.path in ("target.region", "target.profile")])
    # Where it goes is no question, so there is no flag --on that would say whose region this is.
    build.set_defaults(on="aws")


def _add_doctor(commands: Any) -> None:
    command = add_command(commands, "doctor", "what stands in the way of a job, with the remedy for each")
    add_flags(command, COMMON)
    command.add_argument(
        "--for",
        dest="request",
        type=Path,
        metavar="FILE",
        help="check this one job: a whole request, .json or .toml, as --dry-run --json prints one; flags win over it",
    )
    command.add_argument(
        "--policy",
        choices=("user", "role"),
        help="print the policy that whoever sends jobs needs, or the role that they run as, and look at nothing",
    )
    _add_change(command)
    first = command.add_argument_group("the first hour")
    first.add_argument(
        "--first-job",
        action="store_true",
        help="send a few small jobs, for less than 1 USD, and write down what SageMaker shows of itself",
    )
    first.add_argument(
        "--price-per-hour", type=float, metavar="USD", help="of one instance (default: a dated table, where it has one)"
    )
    first.add_argument("--yes", action="store_true", help="agree to what they cost without being asked")
    first.add_argument("--output", type=Path, metavar="DIR", help="where what was seen is written (default: first-job)")
    _add_reading(command)

"""The flags of a job: one table, from which the parser's arguments and the layer of what was chosen both come.

What flows in is a flag's name with the option that it chooses; what the flag takes (a number, one of several words, a
name with a value) follows from the option's type.
"""

import argparse
import csv
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from raysm.cli.parser import (
    ACCOUNT_GROUP,
    JOB_GROUP,
    LIMITS_GROUP,
    NETWORK_GROUP,
    PACKAGES_GROUP,
    RECORDS_GROUP,
    WHERE_GROUP,
    seconds,
    titled,
)
from raysm.client.settings import TARGETS, Key, hint_of
from raysm.request import Local, Script, Similarity, TorchScript
from raysm.request.codec import hints_of
from raysm.request.sweep import ScriptSweep, Search
from raysm.request.targets import INSTANCE_KINDS

__all__ = [
    "CHANGE",
    "COMMON",
    "RUN",
    "SCRIPT",
    "SIMILARITY",
    "SWEEP",
    "TARGET",
    "TRAIN",
    "TUNE",
    "WORKLOADS",
    "Flag",
    "add_flags",
]

CHANGE = "--set"
"""The flag for every option that has none of its own."""

TIME = "TIME"
"""What ``--help`` calls a value in seconds, which may also be written as 30m or 2h."""

TARGETS_OWN = "target"
"""Stands for the table of the target that is chosen: ``--image`` is AWS's or this machine's."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, and the option that it chooses."""

    name: str
    """As it is typed: ``--max-runtime``."""
    path: str
    """The option: ``limits.max_runtime_s``."""
    help: str | Callable[[], str]
    """For ``--help``; a function is asked when a parser is made, because kinds may have been added by then."""
    metavar: str | None = field(default=None, kw_only=True)
    """What ``--help`` calls the value; None is derived from the name."""
    choices: Callable[[], tuple[str, ...]] | None = field(default=None, kw_only=True)
    """Returns what the value may be, where the option's type does not say it; asked as late as the help."""
    takes: Any = field(default=None, kw_only=True)
    """The type of what is typed, where the option's own has several parts, of which a name stands for all."""
    action: type[argparse.Action] | None = field(default=None, kw_only=True)
    """What takes the value; None is what follows from its type."""
    group: str = field(default="", kw_only=True)
    """The title below which ``--help`` has it; empty is among the command's own."""

    @property
    def text(self) -> str:
        """The help as it stands now."""
        return self.help() if callable(self.help) else self.help

    @property
    def key(self) -> Key:
        """The way to the option."""
        return tuple(self.path.split("."))

    @property
    def dest(self) -> str:
        """The attribute that argparse gives the value."""
        return self.name.removeprefix("--").replace("-", "_")


class _Names(argparse.Action):
    """Takes names with commas between them, quoted as in a CSV, as often as the flag is given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        names = next(csv.reader([values])) or [""]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *names])


def _describe_instance_kinds() -> str:
    default = Local().instance_kind
    *first, last = [
        f"{kind.summary} (default)" if kind.name == default else kind.summary for kind in INSTANCE_KINDS.values()
    ]
    return f"on this machine: {', '.join(first)}, or {last}"


def _grouped(title: str, *flags: Flag) -> tuple[Flag, ...]:
    return tuple(replace(flag, group=title) for flag in flags)


COMMON = (
    Flag("--instances", "cluster.count", "number of instances (default 1)", metavar="N"),
    Flag("--name", "name", "the task's name; each job gets a name of its own, made from it"),
    *_grouped(
        PACKAGES_GROUP,
        Flag("--requirement", "requirements", "pip installs it; or a requirements.txt; repeatable", metavar="PACKAGE"),
        Flag("--pip-index", "pip_index", "where pip gets them from: an address, or a CodeArtifact ARN", metavar="URL"),
        Flag("--wheel", "wheels", "a package that travels along and is installed; repeatable", metavar="FILE"),
        Flag(
            "--env",
            "environment",
            "a variable of every instance; no secrets, since DescribeTrainingJob shows it; repeatable",
            metavar="NAME=VALUE",
        ),
    ),
    *_grouped(
        RECORDS_GROUP,
        Flag("--project", "project", "jobs of one project lie together (default: default)"),
        Flag(
            "--hyperparameter",
            "hyperparameters",
            "told to the job in SM_HPS, and shown with it; repeatable",
            metavar="NAME=VALUE",
        ),
        Flag(
            "--hyperparameters-as-args",
            "hyperparameters_as_args",
            "give the script its hyperparameters as arguments too: --NAME VALUE",
        ),
        Flag("--tag", "tags", "a tag of the job, by which costs are told apart; repeatable", metavar="NAME=VALUE"),
        Flag(
            "--tracking", "tracking", "mirror metrics to MLflow: sqlite:///mlflow.db, http://…, an ARN", metavar="URI"
        ),
    ),
    *_grouped(
        LIMITS_GROUP,
        Flag(
            "--max-runtime",
            "limits.max_runtime_s",
            "at most so long: 90s, 30m, 2h, 1d, or seconds (default: 1d)",
            metavar=TIME,
        ),
        Flag("--max-restarts", "limits.max_restarts", "follow-up jobs after --max-runtime", metavar="N"),
        Flag("--resume", "resume", "go on with the state of the task's latest job"),
        Flag("--if-done", "if_done", "skip: return what the same task did before"),
    ),
    *_grouped(
        JOB_GROUP,
        Flag("--instance-type", "cluster.instance_type", "ml.c5.4xlarge …; needed on AWS", metavar="TYPE"),
        Flag("--spot", "limits.spot", "spot capacity, which can be interrupted"),
        Flag("--max-wait", "limits.max_wait_s", "how long to wait for spot capacity and to run", metavar=TIME),
        Flag("--kind", "kind", "which of SageMaker's APIs runs it (default: training)"),
        Flag("--volume-gb", "cluster.volume_gb", "of each instance, for inputs and scratch (default 30)", metavar="GB"),
        Flag("--keep-alive", "cluster.keep_alive_s", "how long to keep the instances for the next job", metavar=TIME),
        Flag("--output-uri", "output_uri", "where results go: s3://bucket/prefix", metavar="URI"),
        Flag("--checkpoint-uri", "checkpoint_uri", "where the state goes that survives runs", metavar="URI"),
        Flag(
            "--debug",
            "security.remote_debug",
            "a shell in each instance, and Ray's dashboard, through SSM (default: none)",
        ),
    ),
    *_grouped(
        NETWORK_GROUP,
        Flag("--subnet", "security.subnets", "of the VPC that the instances join; repeatable", metavar="ID"),
        Flag("--security-group", "security.security_groups", "of that VPC; repeatable", metavar="ID"),
        Flag("--volume-kms-key", "security.volume_kms_key", "encrypts the volumes: an ID or ARN", metavar="KEY"),
        Flag("--output-kms-key", "security.output_kms_key", "encrypts what is left in S3", metavar="KEY"),
        Flag("--encrypt-traffic", "security.encrypt_traffic", "encrypt what the instances send each other; slower"),
        Flag("--isolation", "security.isolation", "no network but between the instances"),
    ),
)
"""Of every command that sends a job."""

TARGET = (
    *_grouped(
        WHERE_GROUP,
        Flag("--on", "on", "this machine (default), or AWS"),
        Flag("--instance-kind", "target.instance_kind", _describe_instance_kinds, choices=lambda: (*INSTANCE_KINDS,)),
    ),
    *_grouped(
        ACCOUNT_GROUP,
        Flag("--role", "target.role", "that the job runs as", metavar="ARN"),
        Flag("--region", "target.region", "(default: of the AWS configuration)"),
        Flag("--profile", "target.profile", "of the AWS configuration"),
        Flag("--bucket", "target.bucket", "for payloads and results (default: sagemaker-REGION-ACCOUNT)"),
        Flag(
            "--image",
            "target.image",
            "the container image (default: AWS's PyTorch of the region); for --instance-kind docker, too",
            metavar="URI",
        ),
    ),
)
"""Of every command that asks a service."""

RUN = (
    Flag(
        "--source-dir",
        "workload.source_dir",
        "a folder that travels whole, but for what is hidden, environments and results (default: the script and the "
        "modules beside it that it imports)",
        metavar="DIR",
    ),
    Flag(
        "--input",
        "inputs",
        "a channel: a path, s3://…, or job:JOB/data; the script finds it at $SM_CHANNEL_NAME; repeatable",
        metavar="NAME=URI",
    ),
)
"""Of the commands whose workload is a script."""

IN_STATE = Flag(
    "--in-state",
    "workload.in_state",
    "run in $RAYSM_STATE: what the script leaves in its working folder is there after --resume and interruptions",
)

SCRIPT = (
    *RUN,
    Flag("--ray-init", "workload.ray_init", "join the cluster first: the script calls no ray.init()"),
    IN_STATE,
)

TRAIN = (
    *RUN,
    IN_STATE,
    Flag(
        "--workers-per-instance",
        "workload.workers_per_instance",
        "processes on each instance (default: one for each GPU; without GPUs, one)",
        metavar="N",
    ),
    Flag(
        "--spawns",
        "workload.spawns",
        "the script starts the processes of its node itself; {rank}, {world_size}, {master_addr} and {master_port} in "
        "its arguments become the instance's",
    ),
    Flag("--worker-restarts", "workload.max_restarts", "start all workers anew after one failed", metavar="N"),
)

SIMILARITY = (
    Flag("--top-k", "workload.top_k", "keep the K most similar other rows of each row", metavar="K"),
    Flag("--threshold", "workload.threshold", "keep the pairs of rows at least this similar", metavar="T"),
    Flag("--full", "workload.full", "keep the whole N x N matrix"),
    Flag(
        "--queries",
        "inputs.queries.uri",
        "compare these rows with those of MATRIX, instead of MATRIX's own",
        metavar="MATRIX",
    ),
    Flag("--dtype", "workload.dtype", "of the full matrix"),
    Flag(
        "--id-column",
        "workload.id_column",
        "a column that names the rows, kept beside them and not a feature; repeatable",
        metavar="NAME",
        takes=tuple[str, ...],
    ),
    Flag(
        "--columns",
        "workload.columns",
        "the features (default: all numeric columns but ids and an index of pandas); repeatable",
        metavar="NAME,NAME",
        action=_Names,
    ),
    Flag(
        "--exclude-columns",
        "workload.exclude_columns",
        "columns that are not features; repeatable",
        metavar="NAME,NAME",
        action=_Names,
    ),
    Flag("--parts", "workload.parts", "files of the result, each written by an instance (default: chosen)"),
    Flag("--block-rows", "workload.block_rows", "rows of one task (default: chosen)", metavar="ROWS"),
)

SWEEP = (
    *RUN,
    Flag(
        "--space",
        "workload.space",
        "a parameter's range: lr=loguniform:1e-4:1e-1, batch=choice:32,64, layers=randint:1:4; repeatable",
        metavar="NAME=RANGE",
    ),
    Flag("--metric", "workload.metric", "what counts, as the script reports it (raysm.report)", metavar="NAME"),
    Flag("--mode", "workload.mode", "the direction: min keeps the lowest value of the metric, max the highest"),
    Flag("--trials", "workload.trials", "how many are tried (default 20)", metavar="N"),
    Flag("--search", "workload.search", "what chooses the parameters (default: optuna)", takes=Search),
    Flag(
        "--stop",
        "workload.stop",
        "end trials early that do worse than others (default: none)",
        choices=lambda: ("asha", "median", "pbt"),
        takes=str,
    ),
    Flag("--cpus", "workload.cpus", "CPUs of a trial (default 1)", metavar="N"),
    Flag("--gpus", "workload.gpus", "GPUs of a trial (default: one where there are any)", metavar="N"),
    Flag("--concurrency", "workload.concurrency", "trials at a time, at most (default: as many as fit)", metavar="N"),
    Flag("--time-budget", "workload.time_budget_s", "after this time no trial goes on", metavar=TIME),
    Flag("--seed", "workload.seed", "of the search, and of the trials' random numbers", metavar="N"),
)

TUNE = tuple(flag for flag in SWEEP if flag.name != "--concurrency")
"""Of a sweep whose trials the service launches: how many at a time, it is told by itself."""

WORKLOADS: Mapping[str, type[Script | TorchScript | Similarity | ScriptSweep]] = {
    "run": Script,
    "train": TorchScript,
    "sweep": ScriptSweep,
    "tune": ScriptSweep,
    "similarity": Similarity,
}
"""What each command runs."""


def add_flags(parser: Any, flags: typing.Iterable[Flag], command: str = "") -> None:
    """Add flags to a parser, each to its group there; what nobody gives is None.

    Args:
        parser: The parser; of flags without a group it may be a group, too.
        flags: Of the table.
        command: The one whose workload the flags may choose options of.
    """
    flags = tuple(flags)
    for flag in flags:
        hint = flag.takes or _hint(flag, command)
        own = {} if flag.action is None else {"action": flag.action}
        group = titled(parser, flag.group) if flag.group else parser
        group.add_argument(flag.name, help=flag.text, **(_way_of(hint, flag) | own))
    # Told beside the values: another command's --name chooses a metric, not the name of a task.
    parser.set_defaults(flags=(*(parser.get_default("flags") or ()), *flags))


def _hint(flag: Flag, command: str) -> Any:
    table, name = flag.key[0], flag.key[-1]
    if table == "workload":
        return hints_of(WORKLOADS[command])[name]
    if table == TARGETS_OWN:
        kinds = [kind for kind in TARGETS.values() if name in hints_of(kind)]
        # The parser is made before anybody has said where the job goes; which target's it is, ``_target_of`` decides.
        return hints_of(kinds[0])[name]
    return hint_of(flag.key)


def _way_of(hint: Any, flag: Flag) -> dict[str, Any]:
    """Return how argparse takes a value of a type."""
    if isinstance(hint, types.UnionType):  # a number or None
        hint = typing.get_args(hint)[0]
    if flag.metavar == TIME:
        return {"metavar": TIME, "type": seconds}
    if hint is bool:
        # None, not False: a flag that nobody gave must not win over a file's true.
        return {"action": "store_true", "default": None}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint)}
    if typing.get_origin(hint) in (tuple, Mapping):
        return {"action": "append", "metavar": flag.metavar}
    return {"metavar": flag.metavar, "choices": flag.choices() if flag.choices else None, "type": hint}

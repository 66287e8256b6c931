"""The flags of a job, as one table for both the parser and the options that the flags set.

The commands that send a job share most of them; those of ``raysm submit`` are here too.

A flag names an option by its path in the request. The type of the option's field, which TOML files
and Python use too, decides whether the flag takes a number, one of several words, or a name with a
value. ``--set`` sets any option.
"""

import argparse
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from raysm.cli.parser import (
    Family,
    Group,
    Parser,
    add,
    add_command,
    names,
    seconds,
    titled,
    words_of,
)
from raysm.core.client.settings import TARGETS, Key, hint_of
from raysm.core.request import Local
from raysm.core.request.codec import hints_of
from raysm.core.request.targets import INSTANCE_KINDS
from raysm.core.request.workload import Workload

CHANGE = "--set"
"""The flag for every option that has none of its own."""

TIME = "TIME"
"""The metavar of a value in seconds, which may also be written as 30m or 2h."""

TARGETS_OWN = "target"
"""Placeholder for the table of the chosen target: ``--image`` sets an option of AWS or of this
machine."""

SENDING = "raysm.cli.sending:run"
"""What runs most commands that send a job."""

SUBMIT = "submit"
"""The last command of its family: others are listed before it."""

SCRIPT_USAGE = "[SCRIPT] [options] [-- ARGUMENTS OF THE SCRIPT, OR A COMMAND]"


@dataclass(frozen=True, slots=True)
class Flag:
    spec: str
    """The flag with the name of its value for ``--help``: ``--max-runtime TIME``."""
    path: str
    """The option: ``limits.max_runtime_s``."""
    help: str | Callable[[], str]
    """For ``--help``; a function is called when the parser is built, because kinds may have been
    added by then."""
    choices: Callable[[], tuple[str, ...]] | None = field(default=None, kw_only=True)
    """Returns the allowed values, if the option's type does not define them; called as late as
    ``help``."""
    takes: Any = field(default=None, kw_only=True)
    """Type of the value on the command line, if it differs from the option's."""
    action: type[argparse.Action] | None = field(default=None, kw_only=True)
    """The argparse action; None derives it from the type."""
    group: str = field(default="", kw_only=True)
    """Title of its group in ``--help``; empty means the command's own options."""
    noun: str = field(default="", kw_only=True)
    """What messages call one of its NAME=VALUE; empty is the option in the singular, ``tag`` for
    ``tags``."""

    @property
    def name(self) -> str:
        return words_of(self.spec)[0][0]

    @property
    def metavar(self) -> str | None:
        return words_of(self.spec)[1]

    @property
    def key(self) -> Key:
        return tuple(self.path.split("."))

    @property
    def dest(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")


def _describe_instance_kinds() -> str:
    default = Local().instance_kind
    summaries = [
        f"{kind.name}: {kind.summary}{', the default' if kind.name == default else ''}"
        for kind in INSTANCE_KINDS.values()
    ]
    return f"how instances run on this machine ({'; '.join(summaries)})"


def _grouped(title: str, *flags: Flag) -> tuple[Flag, ...]:
    return tuple(replace(flag, group=title) for flag in flags)


COMMON = (
    Flag("--instances N", "cluster.count", "number of instances (default 1)"),
    Flag("--name", "name", "name of the task; each job's name starts with it"),
    *_grouped(
        Group.PACKAGES,
        Flag(
            "--requirement PACKAGE",
            "requirements",
            "install a package, or those of requirements.txt, uv.lock or pylock.toml; repeatable",
        ),
        Flag(
            "--pip-index URL",
            "pip_index",
            "index of pip: a URL, or the ARN of a CodeArtifact repository",
        ),
        Flag("--wheel FILE", "wheels", "upload this wheel and install it; repeatable"),
        Flag(
            "--env NAME=VALUE",
            "environment",
            "environment variable; not for secrets, AWS shows it; repeatable",
            noun="variable",
        ),
    ),
    *_grouped(
        Group.RECORDS,
        Flag(
            "--project", "project", "project of the job, a prefix in the bucket (default: default)"
        ),
        Flag(
            "--hyperparameter NAME=VALUE",
            "hyperparameters",
            "hyperparameter, passed in SM_HPS; repeatable",
        ),
        Flag(
            "--hyperparameters-as-args",
            "hyperparameters_as_args",
            "pass them to the script too: --NAME VALUE",
            takes=bool,
        ),
        Flag(
            "--tag NAME=VALUE", "tags", "tag of the job, for example for cost reports; repeatable"
        ),
        Flag(
            "--tracking URI",
            "tracking",
            "copy metrics to MLflow: sqlite:///mlflow.db, http://…, or an ARN",
        ),
    ),
    *_grouped(
        Group.LIMITS,
        Flag(
            "--max-runtime TIME",
            "limits.max_runtime_s",
            "longest run time: 90s, 30m, 2h, or seconds (default 1d)",
        ),
        Flag(
            "--max-restarts N",
            "limits.max_restarts",
            "follow-up jobs after --max-runtime (default 0)",
        ),
        Flag(
            "--max-cost USD",
            "limits.max_cost",
            "the most that the job may cost: the service stops it before it costs more",
        ),
        Flag(
            "--price-per-hour USD",
            "limits.price_per_hour",
            "hourly price of one instance with its volume (default: from the price table)",
        ),
        Flag(
            "--stall TIME",
            "limits.stall_s",
            "say who waits where after this time without output and work (default 5m; 0: never)",
        ),
        Flag(
            "--on-stall",
            "limits.on_stall",
            (
                "effect of a stall: warn (default), fail, "
                "or restart with its state up to --max-restarts times"
            ),
        ),
        Flag("--resume", "resume", "continue with the state of the task's latest job"),
        Flag(
            "--if-done",
            "if_done",
            "skip: return the result of an identical earlier job instead of running again",
        ),
    ),
    *_grouped(
        Group.JOB,
        Flag(
            "--instance-type TYPE",
            "cluster.instance_type",
            "instance type, such as ml.c5.4xlarge; required on AWS",
        ),
        Flag("--spot", "limits.spot", "use spot capacity, which AWS may interrupt"),
        Flag(
            "--max-wait TIME",
            "limits.max_wait_s",
            "longest total time of waiting for spot capacity and running",
        ),
        Flag("--kind", "kind", "the SageMaker API that runs the job (default: training)"),
        Flag("--volume-gb GB", "cluster.volume_gb", "volume of each instance, in GB (default 30)"),
        Flag(
            "--keep-alive TIME",
            "cluster.keep_alive_s",
            "keep the instances warm this long for the next job",
        ),
        Flag(
            "--allow-cpu",
            "cluster.allow_cpu",
            "run also where torch cannot use the GPUs of an instance",
        ),
        Flag("--output-uri URI", "output_uri", "S3 prefix for results: s3://bucket/prefix"),
        Flag(
            "--checkpoint-uri URI",
            "checkpoint_uri",
            "S3 prefix for state that later runs continue from",
        ),
        Flag(
            "--debug",
            "security.remote_debug",
            "allow a shell in the instances and Ray's dashboard, through SSM",
        ),
    ),
    *_grouped(
        Group.NETWORK,
        Flag(
            "--subnet ID",
            "security.subnets",
            "subnet of the VPC that the instances join; repeatable",
        ),
        Flag(
            "--security-group ID",
            "security.security_groups",
            "security group of that VPC; repeatable",
        ),
        Flag(
            "--volume-kms-key KEY",
            "security.volume_kms_key",
            "KMS key for the volumes: an ID or ARN",
        ),
        Flag(
            "--output-kms-key KEY",
            "security.output_kms_key",
            "KMS key for results, the payload and uploaded inputs in S3",
        ),
        Flag(
            "--encrypt-traffic",
            "security.encrypt_traffic",
            "encrypt traffic between the instances; slower",
        ),
        Flag("--isolation", "security.isolation", "no network except between the instances"),
    ),
)


class _Names(argparse.Action):
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        try:
            setattr(namespace, self.dest, names(values))
        except argparse.ArgumentTypeError as error:
            parser.error(f"argument {option_string}: {error}")


REGIONS = _grouped(
    Group.WHERE,
    Flag(
        "--regions A,B",
        "regions",
        "run in the first of these regions that has instances for the job",
        takes=str,
        action=_Names,
    ),
    Flag(
        "--region-wait TIME",
        "region_wait_s",
        "how long the job waits for instances in each region but the last (default 15m)",
    ),
)

TARGET = (
    *_grouped(
        Group.WHERE,
        Flag("--on", "on", "this machine (default), or AWS"),
        Flag(
            "--instance-kind",
            "target.instance_kind",
            _describe_instance_kinds,
            choices=lambda: (*INSTANCE_KINDS,),
        ),
        Flag(
            "--instance-cpus N",
            "target.cpus",
            "CPUs that Ray uses in each local instance (default: an equal part)",
        ),
    ),
    *_grouped(
        Group.ACCOUNT,
        Flag("--role ARN", "target.role", "role that the job runs as"),
        Flag("--region", "target.region", "AWS region (default: from the AWS configuration)"),
        Flag("--profile", "target.profile", "profile of the AWS configuration"),
        Flag(
            "--bucket",
            "target.bucket",
            "bucket for payloads and results (default: sagemaker-REGION-ACCOUNT)",
        ),
        Flag(
            "--image URI",
            "target.image",
            "container image (default: AWS's PyTorch image); also for instances of kind docker",
        ),
    ),
)

SOURCE = (
    Flag(
        "--source-dir DIR",
        "workload.source_dir",
        "upload this folder (default: the script and what it imports)",
    ),
    Flag(
        "--input NAME=URI",
        "inputs",
        "data at $SM_CHANNEL_NAME: a path, s3://…, efs://…, fsx://…, or job:JOB/data; repeatable",
        noun="channel",
    ),
)

IN_STATE = Flag(
    "--in-state",
    "workload.in_state",
    (
        "run in $RAYSM_STATE, kept over interruptions and for --resume; "
        "write an input as {channel_NAME} in arguments"
    ),
)

METRIC = Flag(
    "--metric NAME=REGEX",
    "metrics",
    "metric in the printed lines: the first group of REGEX; repeatable",
)

STOP_ON_NAN = Flag(
    "--stop-on-nan METRIC",
    "stop_on_nan",
    "end the job once this metric is NaN or infinite, without time to save that state",
)


def add_flags(parser: Any, flags: Iterable[Flag], workload: type[Workload] | None = None) -> None:
    """Add flags to a command; ``workload`` is the kind it sends, whose options flags may name."""
    flags = tuple(flags)
    for flag in flags:
        hint = flag.takes or _hint(flag, workload)
        own = {} if flag.action is None else {"action": flag.action}
        group = titled(parser, flag.group) if flag.group else parser
        group.add_argument(
            flag.name,
            help=flag.help() if callable(flag.help) else flag.help,
            **(_argparse_options(hint, flag) | own),
        )
    # The flags are kept beside the values, because --name means another option in another command.
    parser.set_defaults(flags=(*(parser.get_default("flags") or ()), *flags))
    if workload is not None:
        parser.set_defaults(workload=workload)


def _hint(flag: Flag, workload: type[Workload] | None) -> Any:
    table = flag.key[0]
    name = flag.key[-1]
    if table == "workload" and workload is not None:
        return hints_of(workload)[name]
    if table == TARGETS_OWN:
        # The parser is built before the target is known. All targets that have the option have it
        # with the same type.
        return next(hints_of(kind)[name] for kind in TARGETS.values() if name in hints_of(kind))
    return hint_of(flag.key)


def _argparse_options(hint: Any, flag: Flag) -> dict[str, Any]:
    if isinstance(hint, types.UnionType):  # a number or None
        hint = typing.get_args(hint)[0]
    if flag.metavar == TIME:
        return {"metavar": TIME, "type": seconds}
    if hint is bool:
        # None instead of False: a flag that is not given must not override true in a file.
        return {"action": "store_true", "default": None}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint)}
    if typing.get_origin(hint) in (tuple, Mapping):
        return {"action": "append", "metavar": flag.metavar}
    return {
        "metavar": flag.metavar,
        "choices": flag.choices() if flag.choices else None,
        "type": hint,
    }


def add_change(command: argparse.ArgumentParser) -> None:
    text = "set any option of a job, for example security.isolation=true; repeatable"
    add(titled(command, Group.FILES), f"{CHANGE} OPTION=VALUE", text, action="append")


def add_target(command: argparse.ArgumentParser, flags: Iterable[Flag] = TARGET) -> None:
    add_flags(command, flags)
    group = titled(command, Group.FILES)
    text = "options for all jobs of a project (default: the nearest raysm.toml, here or above)"
    add(group, "--project-file FILE", text, type=Path)
    add(group, "--config-profile NAME", "use this profile of the project file, [profile.NAME.…]")


def add_reading(command: argparse.ArgumentParser) -> None:
    add(command, "--json", "print JSON")
    add_target(command)


def add_submit(commands: Any) -> None:
    command = add_command(
        commands,
        SUBMIT,
        "submit a job of any workload from a request file: --request job.json",
        run=SENDING,
        sends_job=True,
        # argparse would show --request as optional, as it is for the other commands.
        usage="raysm submit --request FILE [options]",
        family=Family.RUN,
        examples="""\
# job.json is the output of --dry-run --json of any command that sends a job
raysm submit --request job.json --output out/""",
    )
    command.set_defaults(
        lacks=lambda arguments: None if arguments.request else required("--request")
    )
    add_sending(command)


def add_script_command(
    commands: Any,
    name: str,
    text: str,
    workload: type[Workload],
    flags: Iterable[Flag],
    *,
    run: str = SENDING,
    usage: str = SCRIPT_USAGE,
    examples: str,
    overview: Iterable[str] = (),
) -> Parser:
    """Add a command that sends a user's script; ``add_sending`` adds the rest of its arguments."""
    command = add_command(
        commands,
        name,
        text,
        run=run,
        is_scripted=True,
        sends_job=True,
        # argparse never sees the arguments after --.
        usage=f"raysm {name} {usage}",
        family=Family.RUN,
        before=SUBMIT,
        examples=examples,
        overview=overview,
    )
    # Optional, because a request file may name the script; ``missing_script`` checks both.
    add(
        command,
        "SCRIPT",
        "the script; inside --source-dir if given; without it, a command follows --",
        nargs="?",
    )
    command.set_defaults(lacks=missing_script)
    add_flags(command, flags, workload)
    return command


def add_sending(command: argparse.ArgumentParser) -> None:
    """Add what every command takes that sends a job; its own arguments are added first."""
    add_flags(command, (*COMMON, *REGIONS))
    add(command, "--output DIR", "copy the result to this folder", type=Path)
    add(command, "--detach", "print the job's name and return at once")
    text = "send nothing and print the API call; with --json, the request that --request reads"
    add(command, "--dry-run", text)
    add(command, "--json", "print the result as JSON (with --detach: the job)")
    add_request(command)
    add_target(command)


def add_request(command: argparse.ArgumentParser) -> None:
    text = "read the whole request from a .json or .toml file; flags override it"
    add(titled(command, Group.FILES), "--request FILE", text, type=Path)
    add_change(command)


def missing_script(arguments: argparse.Namespace) -> str | None:
    """Return what a command with a script lacks; a request file is checked when it is read."""
    if arguments.request is not None or arguments.script is not None or arguments.script_args:
        return None
    return required("SCRIPT")


def required(name: str) -> str:
    return f"the following arguments are required: {name}"

"""The arguments of ``raysm sweep`` and ``raysm tune``."""

import argparse
from typing import Any

from raysm.cli.options import SOURCE, Flag, add_script_command, add_sending, missing_script
from raysm.cli.parser import add
from raysm.features.sweep.request import ScriptSweep, Search

SWEEP = (
    *SOURCE,
    Flag(
        "--space NAME=RANGE",
        "workload.space",
        "lr=loguniform:1e-4:1e-1, batch=choice:32,64, or uniform, randint …; repeatable",
        noun="parameter",
    ),
    Flag(
        "--metric NAME",
        "workload.metric",
        "metric to optimize, as the script reports it (raysm.report)",
    ),
    Flag("--mode", "workload.mode", "min keeps the lowest value of the metric, max the highest"),
    Flag(
        "--trials N",
        "workload.trials",
        "number of trials (default 20); --resume counts those already done",
    ),
    Flag("--search", "workload.search", "search algorithm (default: optuna)", takes=Search),
    Flag(
        "--stop",
        "workload.stop",
        "stop bad trials early",
        choices=lambda: ("asha", "median", "pbt"),
        takes=str,
    ),
    Flag("--cpus N", "workload.cpus", "CPUs of a trial (default 1)"),
    Flag("--gpus N", "workload.gpus", "GPUs of a trial (default: one if there are any)"),
    Flag(
        "--concurrency N",
        "workload.concurrency",
        "maximum number of concurrent trials (default: as many as fit)",
    ),
    Flag("--time-budget TIME", "workload.time_budget_s", "stop all trials after this time"),
    Flag("--seed N", "workload.seed", "seed of the search and of the trials' random numbers"),
)

TUNE = (
    *(flag for flag in SWEEP if flag.name not in ("--concurrency", "--search", "--stop")),
    Flag(
        "--search",
        "workload.search",
        "search algorithm (default: optuna, SageMaker's Bayesian)",
        takes=Search,
    ),
    Flag(
        "--stop",
        "workload.stop",
        "stop bad trials early, as SageMaker does",
        choices=lambda: ("median",),
        takes=str,
    ),
)
"""Flags of a sweep whose trials the service starts; ``raysm tune`` has ``--parallel``."""

USAGE = (
    "[SCRIPT] --space NAME=RANGE --metric NAME --mode min|max [options] [-- OTHER ARGUMENTS, OR A "
    "COMMAND]"
)

NEEDED = {
    "space": "--space NAME=RANGE",
    "metric": "--metric NAME",
    "mode": "--mode min or --mode max",
}


def add_sweep(commands: Any) -> None:
    command = add_script_command(
        commands,
        "sweep",
        "run many trials of a script or a command on one cluster, each with different --NAME=VALUE "
        "arguments (an _ in NAME becomes a -), and keep the best",
        ScriptSweep,
        SWEEP,
        usage=USAGE,
        examples="""\
# 50 trials of main.py --lr …; the script reports its loss with raysm.report(loss=…)
raysm sweep main.py --space lr=loguniform:1e-4:1e-1 --metric loss --mode min \
--trials 50 --output out/ -- --epochs 3""",
        overview=[
            "raysm sweep train.py --space lr=loguniform:1e-4:1e-1 --metric loss --mode min "
            "--trials 50 -- --epochs 3"
        ],
    )
    command.set_defaults(lacks=_missing)
    add_sending(command)


def add_tune(commands: Any) -> None:
    command = add_script_command(
        commands,
        "tune",
        "run a sweep as a SageMaker hyperparameter tuning job, with one training job for each "
        "trial",
        ScriptSweep,
        TUNE,
        run="raysm.features.sweep.tuning_command:run",
        usage=USAGE,
        examples=(
            "raysm tune main.py --space lr=loguniform:1e-4:1e-1 --metric loss --mode min "
            "--parallel 4"
        ),
    )
    command.set_defaults(lacks=_missing)
    add(
        command,
        "--parallel N",
        "maximum number of concurrent trials (default 1)",
        type=int,
        default=1,
    )
    text = "an earlier tuning job whose trials the search learns from; repeatable, up to five"
    add(command, "--parent NAME", text, action="append", default=[])
    add_sending(command)


def _missing(arguments: argparse.Namespace) -> str | None:
    lacks = missing_script(arguments)
    if lacks is not None or arguments.request is not None:
        return lacks
    missing = [text for name, text in NEEDED.items() if getattr(arguments, name) is None]
    return f"a sweep needs {', '.join(missing)}" if missing else None

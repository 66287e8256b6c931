"""The arguments of ``raysm train``."""

from typing import Any

from raysm.cli.options import (
    IN_STATE,
    METRIC,
    SOURCE,
    STOP_ON_NAN,
    Flag,
    add_script_command,
    add_sending,
)
from raysm.features.training.request import TorchScript

FLAGS = (
    *SOURCE,
    METRIC,
    STOP_ON_NAN,
    IN_STATE,
    Flag(
        "--share-state",
        "workload.share_state",
        "start every instance with rank 0's files in $RAYSM_STATE",
    ),
    Flag(
        "--workers-per-instance N",
        "workload.workers_per_instance",
        "workers (default: one per GPU, else one)",
    ),
    Flag(
        "--spawns",
        "workload.spawns",
        "start the script once per instance; it starts its own worker processes, and {rank}, "
        "{world_size}, {master_addr} and {master_port} in its arguments are filled in",
    ),
    Flag(
        "--worker-restarts N",
        "workload.max_restarts",
        "restart all workers up to N times (default 0)",
    ),
)


def add_train(commands: Any) -> None:
    command = add_script_command(
        commands,
        "train",
        "run a script written for torchrun, or a command, unchanged, on all instances; rank 0's "
        "model is the result",
        TorchScript,
        FLAGS,
        examples="""\
# as torchrun on two machines; rank 0's model is copied to out/
raysm train main.py --instances 2 --output out/ -- --epochs 10""",
        overview=["raysm train main.py --instances 2 -- --epochs 10"],
    )
    add_sending(command)

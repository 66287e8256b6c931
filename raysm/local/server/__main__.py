"""``python -m raysm.local.server``: serve the home of an embedded SageMaker."""

import argparse
import os
import sys
from pathlib import Path

from raysm.core.protocol.home import home
from raysm.core.request.targets import INSTANCE_KINDS
from raysm.errors import RaysmError
from raysm.local.instances import best_kind

SETTINGS = ("AWS_", "BOTO", "MOTO_", "TEST_SERVER_MODE", "TEST_PROXY_MODE")
"""Beginnings of the variables of AWS's libraries and of moto, which a shell may have for other
programs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raysm.local.server", description=__doc__)
    parser.add_argument(
        "--home", type=Path, help="folder of the server (default: $RAYSM_HOME, else ~/.raysm)"
    )
    parser.add_argument(
        "--idle-s",
        type=float,
        default=900.0,
        help="end after this many seconds without jobs and calls",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: any free port)"
    )
    kinds = list(INSTANCE_KINDS)
    parser.add_argument(
        "--instance-kind", choices=kinds, help="for jobs that name no kind (default: the best here)"
    )
    parser.add_argument(
        "--cores", type=int, help="instances that run at a time (default: the number of cores)"
    )
    parser.add_argument(
        "--stop-grace-s", type=float, default=120.0, help="seconds from SIGTERM to SIGKILL"
    )
    arguments = parser.parse_args()
    _forget_settings()
    # Imported late, so that --help and a wrong argument answer at once.
    from raysm.local.server.serving import Options, serve

    # Those that this process may use: in a container they may be fewer than the machine's.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    options = Options(
        home=home(arguments.home),
        idle_s=arguments.idle_s,
        port=arguments.port,
        instance_kind=arguments.instance_kind or best_kind(),
        cores=max(1, arguments.cores or cores),
        stop_grace_s=arguments.stop_grace_s,
    )
    try:
        serve(options)
    except RaysmError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _forget_settings() -> None:
    """Remove the user's settings of AWS and moto, which the boto3 inside moto would read."""
    variables = os.environ  # noqa: TID251
    for name in [name for name in variables if name.startswith(SETTINGS)]:
        del variables[name]
    variables |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


if __name__ == "__main__":
    sys.exit(main())

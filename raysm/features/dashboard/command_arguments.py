"""The arguments of ``raysm dashboard``, ``shell`` and ``tunnel``."""

import argparse
import re
from dataclasses import replace
from typing import Any

from raysm.cli.job_arguments import JOB, NO_OPEN, add_reading_job
from raysm.cli.options import TARGET, add_target
from raysm.cli.parser import Family, add, add_command
from raysm.core.client.settings import TARGETS

# Strings, because the module imports what talks to the service.
RUN = "raysm.features.dashboard.command:run"
RUN_IN_INSTANCE = "raysm.features.dashboard.command:run_in_instance"
RUN_STACKS = "raysm.features.dashboard.command:run_stacks"

INSTANCE = re.compile(r"algo-\d+")


class _On(argparse.Action):
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        if INSTANCE.fullmatch(values):
            namespace.instance = values
        elif values in TARGETS:
            namespace.on = values
        else:
            parser.error(
                "argument --on: "
                f"{values!r} is neither {' nor '.join(TARGETS)} nor an instance, algo-2"
            )


def add_dashboard(commands: Any) -> None:
    text = "open Ray's dashboard of a running job in the browser"
    dashboard = add_reading_job(commands, "dashboard", text, run=RUN, job=JOB, before="stop")
    add(dashboard, "--no-open", NO_OPEN)


def add_shell(commands: Any) -> None:
    shell = add_command(
        commands,
        "shell",
        "open a shell in an instance, or run a command there and return its exit code",
        run=RUN_IN_INSTANCE,
        is_scripted=True,
        usage="raysm shell JOB [options] [-- COMMAND]",
        family=Family.ENTER,
        before="token",
        examples="raysm shell digits --instance algo-2 -- nvidia-smi",
    )
    add(shell, "JOB", JOB)
    add_instance_options(shell)


def add_stacks(commands: Any) -> None:
    stacks = add_command(
        commands,
        "stacks",
        "show the line at which each process of a running job stands, on all instances",
        run=RUN_STACKS,
        family=Family.ENTER,
        before="token",
        examples="raysm stacks digits",
    )
    add(stacks, "JOB", JOB)
    add(stacks, "--native", "add the frames of C and C++, by the image's py-spy")
    add(stacks, "--json", "print JSON")
    add_target(stacks)


def add_tunnel(commands: Any) -> None:
    tunnel = add_command(
        commands,
        "tunnel",
        "forward a port of this machine to a port of an instance while the job runs",
        run=RUN_IN_INSTANCE,
        family=Family.ENTER,
        before="token",
        examples="""\
# http://127.0.0.1:6006 then shows TensorBoard of the head
raysm tunnel digits 6006 --local 6006""",
    )
    add(tunnel, "JOB", JOB)
    add(tunnel, "PORT", "port on the instance's loopback, for example 8265", type=int)
    add(tunnel, "--local PORT", "port of this machine (default: any free one)", type=int, default=0)
    add(tunnel, "--json", "print JSON")
    add_instance_options(tunnel)


def add_instance_options(command: argparse.ArgumentParser) -> None:
    add(command, "--instance HOST", "name of the instance, for example algo-2 (default: the head)")
    # --on takes an instance too, as in Python; no target is named like an instance.
    text = "local (default) or aws; --on algo-2 is --instance algo-2"
    add_target(
        command,
        (replace(TARGET[0], spec="--on PLACE", takes=str, action=_On, help=text), *TARGET[1:]),
    )

"""The commands ``raysm dashboard``, ``tunnel``, ``shell`` and ``stacks``."""

import json
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.cli.interrupts import interruptible
from raysm.cli.jobs import find_to_read
from raysm.cli.page import Browse, show_page
from raysm.core.client.job.listing import find_job
from raysm.core.client.service import Service
from raysm.core.protocol.terminal_text import visible
from raysm.features.dashboard.dashboard import open_dashboard
from raysm.features.dashboard.stacks import read_stacks
from raysm.features.dashboard.tunnel.access import run_command


def run(
    arguments: Arguments,
    console: Console,
    service: Service | None = None,
    *,
    browse: Browse = webbrowser.open,
    wait: Callable[[], object] | None = None,
) -> None:
    """Show the dashboard of ``arguments.job`` until Ctrl-C; the job keeps running."""
    service = service or service_to_read(arguments)
    with open_dashboard(find_to_read(arguments.job, service)) as dashboard:
        show_page(
            arguments, console, service, dashboard.url, browse, wait or threading.Event().wait
        )


LOOK_S = 5.0
"""Seconds between two checks that the job still runs; the tunnel ends with the job."""


def run_in_instance(arguments: Arguments, console: Console, service: Service | None = None) -> int:
    service = service or service_to_read(arguments)
    job = find_job(arguments.job, service)
    if arguments.command == "shell":
        return run_command(job.chain, arguments.script_args, on=arguments.instance)
    remote = {"on": arguments.instance, "local_port": arguments.local}
    with interruptible(), job.tunnel(arguments.port, **remote) as tunnel:
        if arguments.json:
            # Flushed, because another program may wait for this line while the command keeps
            # running.
            print(
                json.dumps({"job": job.name, "address": tunnel.address, "port": tunnel.port}),
                flush=True,
            )
        else:
            where = arguments.instance or "the head"
            console.print(
                f"{tunnel.address} leads to port {arguments.port} of {where}; Ctrl-C ends it",
                highlight=False,
            )
        pause = threading.Event()
        while not job.done():
            pause.wait(LOOK_S)
    return 0


def run_stacks(arguments: Arguments, console: Console, service: Service | None = None) -> None:
    """Print the stacks of ``arguments.job``, the odd ones first, or all of them as JSON."""
    job = find_job(arguments.job, service or service_to_read(arguments))
    stacks = read_stacks(job, native=arguments.native)
    if arguments.json:
        print(json.dumps([asdict(process) for process in stacks.processes]))
        return
    # Unwrapped and as it is: a line of a stack may be long, and may contain brackets.
    for line in str(stacks).splitlines():
        print(visible(line))

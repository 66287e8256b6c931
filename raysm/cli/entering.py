"""The commands that lead into an instance of a job: tunnel, shell."""

import json
import threading

from rich.console import Console

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.client.job.handle import Job
from raysm.client.job.listing import find_job
from raysm.client.service import Service
from raysm.client.tunnel.opening import run_command

__all__ = ["run"]

LOOK_S = 5.0
"""How often to see whether the job still runs: a tunnel into one that has ended leads nowhere."""


def run(arguments: Arguments, console: Console, service: Service | None = None) -> int:
    """Do what ``arguments.command`` says; return the exit code: of a shell that of the remote command."""
    service = service or service_to_read(arguments)
    job = find_job(arguments.job, service)
    if arguments.command == "shell":
        # Its code is the command's own, as ssh has it.
        return run_command(job.chain, arguments.script_args, on=arguments.instance)
    _tunnel(arguments, job, console)
    return 0


def _tunnel(arguments: Arguments, job: Job, console: Console) -> None:
    with job.tunnel(arguments.port, on=arguments.instance, local_port=arguments.local) as tunnel:
        if arguments.json:
            # At once: whoever started the command waits for this line, and the command goes on.
            print(json.dumps({"job": job.name, "address": tunnel.address, "port": tunnel.port}), flush=True)
        else:
            where = arguments.instance or "the head"
            console.print(
                f"{tunnel.address} leads to port {arguments.port} of {where}; Ctrl-C ends it", highlight=False
            )
        pause = threading.Event()
        while not job.done():
            pause.wait(LOOK_S)

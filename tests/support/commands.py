"""Commands about jobs, run here against a service that says what the test wants."""

import io
import time

from rich.console import Console

from raysm.cli import about_jobs
from raysm.cli.arguments import parse
from raysm.contract import events

NOW_MS = int(time.time() * 1000) - 60_000  # moto takes no lines of long ago


def printed(remote, *argv):
    out = io.StringIO()
    about_jobs.run(parse(argv), Console(file=out, width=80), remote.service)
    return out.getvalue()


def tell(remote, job, *told):
    lines = [(NOW_MS + at, events.line(event)) for at, event in enumerate(told)]
    remote.write_log(job.name, "algo-1", lines)

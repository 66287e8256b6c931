"""The commands that send a job of the user's: it is prepared, sent and followed, and its result is brought."""

import json
import os
import sys
import time

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import read_settings
from raysm.cli.console import Console
from raysm.cli.display import Display
from raysm.cli.job_values import described
from raysm.cli.report import brought, print_result
from raysm.cli.submitting import as_request, check_output, crowding, facts, follow, prepared, send
from raysm.cli.times import Times
from raysm.client.logs.pending import Silence
from raysm.client.prepared import Prepared
from raysm.client.results.result import check_folder
from raysm.client.sweep_result import SweepResult
from raysm.client.targets.endpoint import answering
from raysm.contract.names import WORKLOAD_TAG
from raysm.errors import JobFailed, RaysmError

__all__ = ["run"]


def run(arguments: Arguments, console: Console) -> int | None:
    """Send the job that ``arguments`` ask for, or say what it would be; return 1 if trials of a sweep failed."""
    if getattr(arguments, "estimate", False):
        # Here alone: it measures by the engines, which who only sends need not load.
        from raysm.cli import estimating

        estimating.run(arguments, console)
        return None
    return _send(arguments, console)


def _send(arguments: Arguments, console: Console) -> int | None:
    # From here on, so that the time which is told is what its user has waited.
    times = Times(started_s=time.time())
    if arguments.output is not None:
        check_output(arguments.output)
    # Flags, project file and request in one: what applies is read once.
    with Silence(_say_aside, lambda: "waiting: reading the options and the inputs"):
        settings = read_settings(arguments)
        ready = prepared(settings)
    if arguments.output is not None:
        # Again, now that the task is known: the result of another one must stay.
        check_folder(arguments.output, ready.request.name)
    warning = crowding(ready, os.cpu_count() or 1)
    if warning is not None:
        # To stderr, since --json has nothing but its document on stdout.
        print(f"raysm: {warning}", file=sys.stderr)
    if arguments.dry_run:
        # The request can be given back by --request; the plan is what the service would be sent.
        print(json.dumps(as_request(ready, settings), indent=1) if arguments.json else ready.plan.json())
        for verb, _, fact in facts(ready):
            print(f"would {verb} {fact}", file=sys.stderr)
        return None
    # Asked here, and not left to send(): the display then says that nothing was started.
    done = ready.finished() if settings.options().get("if_done") == "skip" else None
    # stdout is for the result alone where a program reads it.
    shown = Console(stderr=True) if arguments.json else console
    with Silence(_say_aside, lambda: _before_creation(ready)):
        job = done or send(ready, shown)
    times.sent_s = time.time()
    lines = [] if done is not None else [f"{label} {fact}" for _, label, fact in facts(ready)]
    if arguments.detach:
        for line in lines:
            print(line, file=sys.stderr)
        print(json.dumps(described(job), indent=1) if arguments.json else job.name)
        return None
    with Display(shown) as display:
        if done is not None and done.done():
            display.say(f"already done by {job.name}; nothing was started")
        else:
            display.way_in = job.service.target.way_to_dashboard(job.name)
            follow(job, display, (f"job {job.name}", *lines))
    times.formed_s, times.done_s, times.is_billed = display.formed_s, display.done_s, job.service.target.is_billed
    try:
        with Silence(_say_aside, lambda: "waiting: bringing the result"):
            result = brought(job, arguments.output, shown)
    except JobFailed as error:
        traceback = error.remote_traceback.splitlines()
        if arguments.json or not traceback or not display.has_shown(traceback):
            raise
        # It stands above, where it came up.
        raise RaysmError(error.headline) from error
    times.ended_s, times.described = time.time(), job.describe()
    print_result(
        console,
        result,
        workload=job.tags.get(WORKLOAD_TAG, ""),
        as_json=arguments.json,
        times=None if done is not None else times,
        bill=None if done is not None else job.cost(),
    )
    return int(bool(result.trials.failed)) if isinstance(result, SweepResult) else None


def _say_aside(text: str) -> None:
    # To stderr: stdout is for answers.
    print(text, file=sys.stderr, flush=True)


def _before_creation(ready: Prepared) -> str:
    """Return what is being waited for until the service has the job."""
    service = ready.service
    if not service.target.is_billed and answering(service.home) is None:
        return "waiting: the embedded SageMaker of this machine starts"
    if ready.uploads:
        return f"waiting: uploading {', '.join(upload.channel for upload in ready.uploads)} to s3://{service.bucket}"
    return "waiting: sending the job"

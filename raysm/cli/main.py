"""The command ``raysm``."""

import json
import os
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments, parse
from raysm.cli.display import Display
from raysm.errors import (
    CredentialsExpired,
    InvalidConfig,
    InvalidRequest,
    JobFailed,
    MissingDependency,
    NoRoom,
    RaysmError,
)

__all__ = ["main"]

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

SUBMITTING = ("run", "train", "sweep", "similarity", "submit")
"""The commands that send a job of the user's."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 where all went well, 1 where a job failed or the doctor found what stands in its way, 2 where what was asked
        for cannot be, 3 where the doctor found nothing, but could not look at all, 4 where the credentials have expired
        and the job goes on, 130 after Ctrl-C.
    """
    arguments = parse(sys.argv[1:] if argv is None else argv)
    errors = Console(stderr=True)
    try:
        return _run(arguments, Console())
    except KeyboardInterrupt:
        # Whoever only looked at a job has stopped nothing.
        errors.print("stopped" if arguments.command in (*SUBMITTING, "demo") else "interrupted", highlight=False)
        return INTERRUPTED
    except BrokenPipeError:  # raysm logs NAME | head
        # At its exit Python flushes stdout once more, and would print the same error.
        sys.stderr.close()
        return 0
    except (InvalidRequest, InvalidConfig, MissingDependency, NoRoom) as error:
        errors.print(Text(f"raysm: {error}"), soft_wrap=True)
        return 2
    except (RaysmError, OSError) as error:
        errors.print(Text(f"raysm: {error}"), soft_wrap=True)
        return error.exit_status if isinstance(error, CredentialsExpired) else 1


def _run(arguments: Arguments, console: Console) -> int:
    # Imported where needed: `raysm --help` answers at once.
    if arguments.command == "similarity" and arguments.estimate:
        from raysm.cli import estimating

        estimating.run(arguments, console)
    elif arguments.command in SUBMITTING:
        _submit(arguments, console)
    elif arguments.command == "config":
        from raysm.cli import config

        config.run(arguments, console)
    elif arguments.command == "demo":
        from raysm.cli import demo

        demo.run(arguments, console)
    elif arguments.command == "local":
        from raysm.cli import local_server

        local_server.run(arguments, console)
    elif arguments.command == "image":
        from raysm.cli import image

        image.run(arguments, console)
    elif arguments.command in ("tunnel", "shell"):
        from raysm.cli import entering

        return entering.run(arguments, console)
    elif arguments.command in ("session", "exec"):
        from raysm.cli import sessions

        return sessions.run(arguments, console)
    elif arguments.command == "dashboard":
        from raysm.cli import dashboard

        dashboard.run(arguments, console)
    elif arguments.command == "prices":
        from raysm.cli import prices

        prices.run(arguments, console)
    elif arguments.command == "doctor":
        from raysm.cli import doctor

        return doctor.run(arguments, console)
    else:
        from raysm.cli import about_jobs

        about_jobs.run(arguments, console)
    return 0


def _submit(arguments: Arguments, console: Console) -> None:
    from raysm.cli.about_jobs import described
    from raysm.cli.choosing import read_settings
    from raysm.cli.report import brought, print_result
    from raysm.cli.submitting import as_request, check_output, crowding, facts, follow, prepared
    from raysm.client.result_folder import check_folder
    from raysm.contract.names import WORKLOAD_TAG

    started_s = time.monotonic()
    if arguments.output is not None:
        check_output(arguments.output)
    settings = read_settings(arguments)
    ready = prepared(settings)
    if arguments.output is not None:
        # Again, now that the task is known: the result of another one must stay.
        check_folder(arguments.output, ready.request.name)
    warning = crowding(ready, os.cpu_count() or 1)
    if warning is not None:
        print(f"raysm: {warning}", file=sys.stderr)
    if arguments.dry_run:
        print(json.dumps(as_request(ready, settings), indent=1) if arguments.json else ready.plan.json())
        for verb, _, fact in facts(ready):
            print(f"would {verb} {fact}", file=sys.stderr)
        return
    done = ready.finished() if settings.options().get("if_done") == "skip" else None
    job = done or ready.send()
    lines = [] if done is not None else [f"{label} {fact}" for _, label, fact in facts(ready)]
    if arguments.detach:
        for line in lines:
            print(line, file=sys.stderr)
        print(json.dumps(described(job), indent=1) if arguments.json else job.name)
        return
    # stdout is for the result alone where a program reads it.
    shown = Console(stderr=True) if arguments.json else console
    with Display(shown) as display:
        if done is not None and done.done():
            display.say(f"already done by {job.name}; nothing was started")
        else:
            for line in (f"job {job.name}", *lines):
                display.say(line)
            display.way_in = job.service.target.way_to_dashboard(job.name)
            follow(job, display)
    try:
        result = brought(job, arguments.output, shown)
    except JobFailed as error:
        traceback = error.remote_traceback.splitlines()
        if arguments.json or not traceback or not display.has_shown(traceback):
            raise
        # It stands above, where it came up.
        raise RaysmError(error.headline) from error
    print_result(
        console,
        result,
        workload=job.tags.get(WORKLOAD_TAG, ""),
        as_json=arguments.json,
        elapsed_s=None if done is not None else time.monotonic() - started_s,
        forming_s=display.forming_s,
        bill=None if done is not None else job.cost(),
    )

"""``raysm grid run --via batch``, and what it has the Batch job run: a planned grid flows in, its screen is drawn."""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import Console, print_answer
from raysm.cli.grid_events import follow
from raysm.client.service import Service
from raysm.contract.names import counted
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.batch_job.definition import ControllerJob
from raysm.grid.batch_job.sending import SentController, send
from raysm.grid.batch_job.taking_up import exit_code, take_up
from raysm.grid.planning import Planned
from raysm.views.grid.handle import attach_grid
from raysm.views.grid.screen import screen_lines
from raysm.views.grid.watching import watch

__all__ = ["controller_of", "run", "take_up_here"]

ASKED_S = 10.0
"""Seconds between two looks at the Batch job: of its failure nothing would be seen in the grid."""

TERMINATED = 128 + signal.SIGTERM
"""As shells have it: an end from outside, after which Batch starts the controller again."""


def controller_of(arguments: Arguments, in_file: Mapping[str, Any]) -> ControllerJob | None:
    """Return the job that is to run the grid; None where this process does.

    Args:
        arguments: Of the command line, which win.
        in_file: What the grid's own file says of it.

    Raises:
        InvalidRequest: Something is said of a Batch job, and no word that there is to be one; or no job queue is named.
    """
    named = {name: value for name, value in vars(arguments).items() if name in FLAGS and value is not None}
    if arguments.via is None:
        if named:
            raise InvalidRequest(f"{FLAGS[next(iter(named))]} is of a Batch job that runs the grid: add --via batch")
        return None
    fields = {**in_file, **{FIELDS.get(name, name): value for name, value in named.items()}}
    if "job_queue" not in fields:
        raise InvalidRequest("--via batch needs --job-queue, the name of a job queue of EC2 or Fargate")
    return ControllerJob(**cast(Any, fields))


FLAGS = {
    "job_queue": "--job-queue",
    "job_definition": "--job-definition",
    "job_image": "--job-image",
    "job_role": "--job-role",
    "execution_role": "--execution-role",
    "assign_public_ip": "--assign-public-ip",
}
"""Arguments of the Batch job, and the flags by which they are given."""

FIELDS = {"job_image": "image"}
"""Of ControllerJob, where a flag of the same name is the training jobs' own."""


def run(grid: Planned, controller: ControllerJob, arguments: Arguments, console: Console) -> int:
    """Have a Batch job run a grid, and show the grid until it is over; return the exit code.

    Raises:
        InvalidRequest: Something cannot be; nothing was made.
        ServiceError: Batch refuses, or its job has failed.
    """
    shown = Console(stderr=True) if arguments.json else console
    sent_controller = send(grid, controller, goes_on=arguments.go_on)
    name = grid.plan.name
    target = grid.request.template.target
    handle = attach_grid(name, None if sent_controller is None else target)
    text = (
        "nothing of it is left to do"
        if sent_controller is None
        else f"{sent_controller} runs it; Ctrl-C ends the showing alone"
    )
    shown.print(Text(f"grid {name}: {counted(len(grid.tasks), 'row')}; {text}"), soft_wrap=True)
    if sent_controller is not None:
        watch(handle.status, shown, sleep=_watching(sent_controller, Service(target)))
    view = handle.status()
    if arguments.json or sent_controller is None:
        print_answer(view, screen_lines, console, as_json=arguments.json)
    return 0 if set(view.states) <= {TaskState.DONE, TaskState.SKIPPED} else 1


def _watching(controller: SentController, service: Service) -> Callable[[float], None]:
    """Return how the time between two looks at a grid passes: the job that runs it is looked at, too."""
    asked_s = time.monotonic()

    def sleep(seconds: float) -> None:
        nonlocal asked_s
        if time.monotonic() - asked_s >= ASKED_S:
            controller.check(service)
            asked_s = time.monotonic()
        time.sleep(seconds)

    return sleep


def take_up_here(arguments: Arguments, console: Console) -> int:
    """Go on with a grid that was handed over, until it is over: in the Batch job; return the exit code.

    Raises:
        LeaseLost: Another controller runs it.
        InvalidRequest: It is not there, or of another raysm.
    """
    service = Service(read_settings(arguments).target(role=NO_ROLE))
    # Batch's own way to end a job, and that of a host of spare capacity: without, Python would end without a word.
    previous = signal.signal(signal.SIGTERM, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="raysm-grid-") as folder:
            running = take_up(arguments.uri, service, Path(folder))
            try:
                follow(running, console)
                return exit_code(running)
            finally:
                # Let go of: who goes on with it need not wait until this one's lease has run out.
                running.close()
    finally:
        signal.signal(signal.SIGTERM, previous)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(TERMINATED)

"""The commands that send a job: prepare, send, follow, and bring the result."""

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich.console

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings
from raysm.cli.console import Console, interruptible, say_last
from raysm.cli.display import Display, Times
from raysm.cli.report import brought, described, print_result
from raysm.client.costs.bill import most_expensive
from raysm.client.job.handle import Job, attach
from raysm.client.logs.pending import Silence, reasons_told
from raysm.client.options import default_of
from raysm.client.prepared import Prepared
from raysm.client.project import absolute
from raysm.client.results.result import check_folder
from raysm.client.settings import Settings
from raysm.client.submit import prepare
from raysm.client.sweep_result import SweepResult
from raysm.client.targets.endpoint import answering
from raysm.contract.names import WORKLOAD_TAG
from raysm.contract.packages import without_credentials
from raysm.errors import InvalidRequest, JobFailed, RaysmError
from raysm.request import Cluster
from raysm.request.codec import to_json

__all__ = [
    "as_request",
    "check_output",
    "check_timeout",
    "cluster",
    "crowding",
    "end_showing",
    "facts",
    "follow",
    "options_of",
    "prepared",
    "run",
    "send",
]

MOST_PER_CORE = 4
"""Emulated instances mostly wait, so a few share a core well; beyond that their starts wait for each other."""


def cluster(settings: Settings) -> Cluster:
    """Return the instances that are asked for.

    Raises:
        InvalidRequest: AWS without a type, or a number that cannot be.
    """
    is_typed = any(("cluster", name) in settings for name in ("instance_type", "groups"))
    if settings.on.names_own_types and not is_typed:
        raise InvalidRequest(f"--on {settings.on.kind} needs --instance-type, ml.c5.4xlarge for example")
    return settings.options().get("cluster") or Cluster()


def prepared(settings: Settings) -> Prepared:
    """Build the job that was asked for; nothing is sent.

    Raises:
        InvalidRequest: What was asked for cannot be; the message says what, the value and the remedy.
    """
    where = settings.target()
    workload = settings.workload()
    # For what it refuses alone: that AWS needs a type is said by the name of the flag.
    cluster(settings)
    options = options_of(settings)
    # Whether a finished job will do is asked by the command itself, which says so.
    options.pop("if_done", None)
    return prepare(workload, on=where, **options)


def options_of(settings: Settings) -> dict[str, Any]:
    """Return the options of a job, with the packages that files of requirements and wheels name.

    Raises:
        InvalidRequest: A file cannot be read, or names what cannot be installed.
    """
    options = settings.options()
    if options.get("wheels") or options.get("requirements"):
        options["requirements"] = _requirements(options.get("requirements", ()), options.get("wheels", ()))
    return options


def crowding(ready: Prepared, cores: int) -> str | None:
    """Return a warning where the instances of a job are far more than this machine can carry; else None.

    Args:
        ready: The job.
        cores: Of this machine.
    """
    count = ready.request.cluster.size
    if ready.service.target.is_billed or count <= MOST_PER_CORE * cores:
        return None
    return (
        f"{count} instances share the {cores} core{'s' if cores > 1 else ''} of this machine, and each of them starts "
        f"its own Ray processes: it may take long until all have joined; --instances {2 * cores} is a good number here"
    )


def facts(ready: Prepared) -> list[tuple[str, str, str]]:
    """Return what a person should know of a job that was not asked for: the verb, the label, and the fact of each."""
    rows = [("run in", "image", ready.image)]
    if ready.source is not None:
        rows.append(("send", "sent", ready.source.summary))
    if ready.service.target.is_billed:
        rows.append(("cost", "cost", most_expensive(ready.request, ready.service.region)))
    return [(verb, label, fact) for verb, label, fact in rows if fact]


def as_request(ready: Prepared, settings: Settings) -> dict[str, Any]:
    """Return a prepared job as ``--request`` takes it: every option, also those that nobody chose.

    The inputs are those that were named, not where they will be uploaded to, and paths are absolute.
    """
    options = settings.options()
    # The job's own name has its time in it: given back, that would become part of the task's.
    request = replace(ready.request, name=ready.task, inputs=options.get("inputs", {}))
    kind = settings.on.kind
    where = {name: item for name, item in to_json(ready.service.target).items() if name != "kind"}
    # These are no fields of a JobRequest.
    beside = {name: options.get(name, default_of(name)) for name in ("wheels", "if_done", "resume")}
    return absolute({"on": kind, kind: where} | to_json(beside) | to_json(request), Path.cwd())


def _requirements(named: Sequence[str], wheels: Sequence[str]) -> list[str]:
    """Return what pip is asked for: what was named, what the lines of files name, and the wheels that travel."""
    listed = [line for name in named for line in (_lines(Path(name)) if name.endswith(".txt") else [name])]
    return list(dict.fromkeys([*listed, *map(_requirement, wheels)]))


def _lines(file: Path) -> list[str]:
    """Return the requirements that a requirements.txt names."""
    try:
        # As pip reads it: a # inside a word, as in a URL's fragment, begins no comment.
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except OSError as error:
        raise InvalidRequest(f"--requirement {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        # What pip freeze > FILE leaves in some shells of Windows.
        raise InvalidRequest(f"--requirement {file} is not UTF-8: {error}; save it as UTF-8") from error
    for line in lines:
        # What -r would name does not travel, and the options of pip in an instance are raysm's.
        if line.startswith("-"):
            # An index of a team's own often has what opens it in its address.
            shown = without_credentials(line)
            raise InvalidRequest(f"--requirement {file}: {shown!r} is an option of pip, not a package; name packages")
    return [line for line in lines if line]


def _requirement(wheel: str) -> str:
    """Return the requirement that a wheel's file name fulfils: pip installs no wheel that is not asked for."""
    parts = Path(wheel).name.removesuffix(".whl").split("-")
    # Five parts, or six where a build number stands behind the version.
    if not wheel.endswith(".whl") or len(parts) not in (5, 6):
        raise InvalidRequest(f"--wheel takes a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl, got {wheel!r}")
    return f"{parts[0]}=={parts[1]}"


def check_timeout(timeout_s: float | None) -> None:
    """Refuse a wait of less than no time.

    Raises:
        InvalidRequest: ``timeout_s`` is below 0.
    """
    if timeout_s is not None and timeout_s < 0:
        raise InvalidRequest(f"--timeout must be at least 0 seconds, got {timeout_s:g}")


def check_output(output: Path) -> None:
    """Refuse, before anything is computed, a folder into which the result could not be brought.

    Raises:
        InvalidRequest: ``output`` is a file, cannot be written, or holds something that is no result.
    """
    check_folder(output)
    try:
        # Made and written to, not asked about: to root every folder looks writable.
        missing = [folder for folder in (output, *output.absolute().parents) if not folder.exists()]
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
        # A command that is refused after this leaves no empty folder behind.
        for folder in missing:
            folder.rmdir()
    except OSError as error:
        raise InvalidRequest(f"--output {output} cannot be written: {error.strerror}; name another folder") from error


def send(ready: Prepared, console: rich.console.Console) -> Job:
    """Send a prepared job. Ctrl-C while it is being sent leaves no job behind on this machine.

    Raises:
        KeyboardInterrupt: The user interrupted it.
    """
    with interruptible():
        try:
            return ready.send()
        except KeyboardInterrupt:
            # The service may have created the job before it was interrupted.
            with contextlib.suppress(RaysmError):
                end_showing(attach(ready.request.name, ready.service), console)
            raise


def follow(job: Job, display: Display, first: Sequence[str] = ()) -> None:
    """Show the job's lines until it has ended. On this machine Ctrl-C stops the job; on AWS it only ends the display.

    A closed stdout counts as Ctrl-C: the reader of a pipe has gone.

    Args:
        job: One that runs.
        display: Where its lines go.
        first: Lines of raysm's own, before those of the job.

    Raises:
        KeyboardInterrupt: The user interrupted it; a job of this machine has been stopped by then.
        BrokenPipeError: stdout was closed; a job of this machine has been stopped by then.
    """
    with interruptible() as interrupts:
        try:
            for text in first:
                display.say(text)
            with reasons_told(job, display.say) as hear:
                for line in job.lines(follow=True):
                    hear(line.text)
                    # Between two lines: a console that is interrupted while it writes would write the same once more.
                    with interrupts.held():
                        display.line(line.host, line.text)
        except (KeyboardInterrupt, BrokenPipeError):
            end_showing(job, display.console)
            raise


def end_showing(job: Job, console: rich.console.Console) -> None:
    """Stop a job of this machine and wait for its end; of a job on AWS, say that it goes on."""
    if job.service.target.is_billed:
        text = f"{job.name} goes on: raysm logs -f {job.name} --on aws …, or raysm stop {job.name} --on aws …"
        say_last(console, text)
        return
    say_last(console, f"stopping {job.name}: it has time to save its work; Ctrl-C again stops waiting for its end")
    job.stop()


def run(arguments: Arguments, console: rich.console.Console) -> int | None:
    """Send the job that ``arguments`` ask for, or say what it would be; return 1 if trials of a sweep failed."""
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

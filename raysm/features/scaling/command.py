"""Run ``raysm scale``: send the same job once for each number of instances, and compare them."""

import json
import shlex
from collections.abc import Sequence

from raysm.cli.arguments import Arguments, parse
from raysm.cli.config import read_settings
from raysm.cli.console import Console, say, say_aside
from raysm.cli.display import Display
from raysm.cli.options import SENDING
from raysm.cli.sending import facts, follow, prepared, send
from raysm.core.client.job.description import Status
from raysm.core.client.job.handle import Job
from raysm.core.client.settings import Settings
from raysm.core.client.submit import Prepared
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.scaling.table import Measured, Scaling, chart_lines, notes, table_lines

REFUSED = {
    "detach": "each job is followed to its end, since the next one starts then",
    "dry_run": "the command alone shows its plan: raysm COMMAND … --dry-run",
    "json": "write it before --, for the table: raysm scale 1,2 --json -- COMMAND …",
    "output": "raysm result JOB --output DIR fetches the result of one size",
}
"""Options of the command that have no meaning for several jobs, and what to do instead."""


def run(arguments: Arguments, console: Console) -> int:
    """Run the jobs one after the other, the smallest first; return 1 if one failed."""
    commands = [command_of(arguments.script_args, size) for size in arguments.sizes]
    # All are prepared before the first is sent: an invalid size costs nothing.
    jobs = [_prepare(each) for each in commands]
    shown = Console(stderr=True) if arguments.json else console
    for size, ready in zip(arguments.sizes, jobs, strict=True):
        for verb, _, fact in facts(ready):
            if verb == "cost":
                say_aside(f"{size} instances cost {fact}")
    finished = []
    failed = None
    for size, ready in zip(arguments.sizes, jobs, strict=True):
        job = send(ready, shown)
        arguments.has_sent = True
        seconds = _follow(job, size, shown)
        if job.status is not Status.COMPLETED:
            failed = job
            break
        finished.append((size, job, seconds))
    if finished:
        _print(_compare(finished, arguments.metric), arguments, console)
    if failed is None:
        return 0
    error = failed.exception()
    raise RaysmError(f"{failed.name}: {error or failed.describe().reason}")


def command_of(words: Sequence[str], size: int) -> Arguments:
    """Parse the command of one size.

    Raises:
        InvalidRequest: It sends no job, or has an option that is one size's own.
    """
    at = list(words).index("--") if "--" in words else len(words)
    own = words[:at]
    if any(word.partition("=")[0] == "--instances" for word in own):
        raise InvalidRequest(
            "the command has --instances, which raysm scale sets: leave it out of the command"
        )
    if own[0].endswith((".py", ".sh")):
        raise InvalidRequest(
            f"{own[0]!r} is a script, and raysm scale takes a command of raysm: "
            f"write -- train {shlex.join(words)} or -- run {shlex.join(words)}"
        )
    if parse(words).run != SENDING:
        raise InvalidRequest(
            f"raysm {own[0]} does not send a job that it follows; raysm scale takes similarity, "
            "run, train, sweep or submit"
        )
    arguments = parse([*own, "--instances", str(size), *words[at:]])
    for name, remedy in REFUSED.items():
        if getattr(arguments, name, None):
            raise InvalidRequest(f"raysm scale takes no --{name.replace('_', '-')} here: {remedy}")
    return arguments


def _prepare(arguments: Arguments) -> Prepared:
    settings = read_settings(arguments)
    _refuse_repetition(settings)
    return prepared(settings)


def _refuse_repetition(settings: Settings) -> None:
    options = settings.options()
    if options.get("regions"):
        raise InvalidRequest(
            "raysm scale runs all sizes in one region: leave out --regions", remedy="give --region"
        )
    if options.get("resume") or options.get("if_done") == "skip":
        raise InvalidRequest(
            "raysm scale measures whole jobs: leave out --resume and --if-done skip"
        )


def _follow(job: Job, size: int, console: Console) -> float:
    """Show a job until it has ended, and return its seconds."""
    plural = "" if size == 1 else "s"
    with Display(console) as display:
        follow(job, display, (f"{size} instance{plural}: job {job.name}",))
    if display.formed_s is not None and display.done_s is not None:
        return max(1e-3, display.done_s - display.formed_s)
    # The display has missed a line of the log.
    described = job.describe()
    assert described.started is not None, "it has completed"
    assert described.ended is not None, "it has completed"
    return (described.ended - described.started).total_seconds()


def _compare(finished: Sequence[tuple[int, Job, float]], metric: str | None) -> Scaling:
    values = [job.metrics().of_job() for _, job, _ in finished]
    names = list(dict.fromkeys(name for each in values for name in each.names))
    name = metric or next(iter(names), "")
    if metric and metric not in names:
        reported = ", ".join(names) or "none"
        say_aside(f"raysm: no job has reported the metric {metric!r}; they have {reported}")
    rows = []
    for (size, job, seconds), own in zip(finished, values, strict=True):
        bill = job.cost()
        last = own.named(name) if name else []
        rows.append(
            Measured(
                instances=size,
                job=job.name,
                seconds=seconds,
                billed_s=job.describe().billable_s,
                usd=None if bill is None else bill.usd,
                metric=last[-1].value if last else None,
            )
        )
    is_shared = not finished[0][1].service.target.is_billed
    return Scaling(jobs=tuple(rows), metric=name, is_shared=is_shared)


def _print(scaling: Scaling, arguments: Arguments, console: Console) -> None:
    if arguments.json:
        print(json.dumps(scaling.as_dict(), indent=1))
        return
    lines = ["", *table_lines(scaling)]
    if len(scaling.jobs) > 1:
        lines += ["", *chart_lines(scaling)]
    for line in [*lines, *notes(scaling)]:
        say(line, console)

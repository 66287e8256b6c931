"""The command ``raysm tune``: a sweep flows in, whose trials the service launches; their table and the best follow."""

import json
import sys
from collections.abc import Callable

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import read_settings
from raysm.cli.console import Console, say_last
from raysm.cli.interrupts import interruptible
from raysm.cli.report import brought, print_result
from raysm.cli.submitting import as_request, check_output, facts, prepared
from raysm.client.results.result import check_folder
from raysm.client.settings import Settings
from raysm.client.tuning.call import TuningOptions, prepare_tuning
from raysm.client.tuning.handle import Tuning
from raysm.contract.events import Trial
from raysm.contract.names import WORKLOAD_TAG
from raysm.errors import InvalidRequest

__all__ = ["run", "teller"]


def run(arguments: Arguments, console: Console) -> int | None:
    """Send the tuning job that ``arguments`` ask for, or say what it would be; return 1 if one of its trials failed.

    Raises:
        InvalidRequest: What is asked for cannot be; nothing was sent.
        JobFailed: The tuning job has failed.
    """
    if arguments.output is not None:
        check_output(arguments.output)
    settings = read_settings(arguments)
    _check(settings)
    options = TuningOptions(parallel=arguments.parallel, parents=tuple(arguments.parent))
    ready = prepare_tuning(prepared(settings), options)
    # Again, now that the task is known: the result of another one must stay.
    if arguments.output is not None:
        check_folder(arguments.output, ready.job.request.name)
    if arguments.dry_run:
        print(json.dumps(as_request(ready.job, settings) if arguments.json else ready.request, indent=1))
        for verb, _, fact in facts(ready.job):
            print(f"would {verb} {fact}, for each trial" if verb == "cost" else f"would {verb} {fact}", file=sys.stderr)
        return None
    tuning = ready.send()
    if arguments.detach:
        print(json.dumps({"tuning": tuning.name}) if arguments.json else tuning.name)
        return None
    # stdout is for the result alone where a program reads it.
    shown = Console(stderr=True) if arguments.json else console
    sweep = ready.sweep
    _say(f"tuning job {tuning.name}, {arguments.parallel} at a time", shown)
    _say(sweep.plan, shown)
    _follow(tuning, shown)
    # Before the table is printed: of a tuning job that has failed its reason is the answer.
    best = tuning.best
    result = brought(best, arguments.output, shown)
    trials = tuning.trials
    if arguments.json:
        print(json.dumps({"tuning": tuning.name, "trials": trials.rows(), "best": best.name, "path": str(result.path)}))
        return int(bool(trials.failed))
    _say(f"\n{trials!r}\n", console)
    _say(f"best     {best.name}, {sweep.direction} {sweep.metric}", console)
    print_result(console, result, workload=best.tags.get(WORKLOAD_TAG, ""))
    return int(bool(trials.failed))


def _check(settings: Settings) -> None:
    """Refuse what a job has and a tuning job has not, and what would be dropped without a word."""
    for name, flag in (("if_done", "--if-done skip"), ("resume", "--resume")):
        if settings.options().get(name) not in (None, False, "run"):
            raise InvalidRequest(
                f"{flag} is of jobs: a tuning job is always a new one; let it learn from an earlier one, --parent NAME"
            )


def _follow(tuning: Tuning, console: Console) -> None:
    """Show each trial as it ends. On this machine Ctrl-C stops the tuning job; on AWS it only ends the showing."""
    with interruptible():
        try:
            tuning.wait(ended=teller(tuning, console))
        except (KeyboardInterrupt, BrokenPipeError):
            if tuning.is_billed:
                say_last(console, f"{tuning.name} goes on; raysm stop {tuning.name} ends it")
            else:
                say_last(console, f"stopping {tuning.name}: its running trials have time to save their work")
                tuning.stop()
            raise


def teller(tuning: Tuning, console: Console) -> Callable[[Trial], None]:
    """Return what says of a trial how it ended."""

    def tell(trial: Trial) -> None:
        params = ", ".join(f"{name}={value}" for name, value in trial.params.items())
        # A trial that failed before its first report has none.
        value = "" if trial.value is None else f", {tuning.metric} {trial.value:g}"
        # The first line alone: a traceback stands in the trial's own log.
        why = f": {trial.reason.splitlines()[0]}" if trial.reason else ""
        _say(f"trial {trial.number} {trial.status}{value} ({params}), {trial.host}{why}", console)

    return tell


def _say(text: str, console: Console) -> None:
    console.print(Text(text), soft_wrap=True)

"""Tuning jobs on the command line: ``raysm tune``, and status, stop and result of a tuning job."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings
from raysm.cli.console import Console, say, say_aside, say_last
from raysm.cli.interrupts import STOPPING_S, interruptible
from raysm.cli.report import brought, print_result
from raysm.cli.sending import as_request, check_output, check_timeout, facts, prepared
from raysm.core.client.results.result import check_folder
from raysm.core.client.service import Service
from raysm.core.client.settings import Settings
from raysm.core.protocol.events import Trial
from raysm.core.protocol.names import WORKLOAD_TAG
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.sweep.client import TrialTable
from raysm.features.sweep.tuning import Tuning, attach_tuning, prepare_tuning


def run(arguments: Arguments, console: Console) -> int | None:
    """Send the requested tuning job and follow it, or print it with ``--dry-run``.

    Return 1 if a trial failed.
    """
    check_output(arguments.output)
    settings = read_settings(arguments)
    _check(settings)
    ready = prepare_tuning(
        prepared(settings), parallel=arguments.parallel, parents=arguments.parent
    )
    # Checked again now that the job's name is known: the result of another task must not be
    # replaced.
    if arguments.output is not None:
        check_folder(arguments.output, ready.job.request.name)
    if arguments.dry_run:
        print(
            json.dumps(
                as_request(ready.job, settings) if arguments.json else ready.request, indent=1
            )
        )
        for verb, _, fact in facts(ready.job):
            say_aside(
                f"would {verb} {fact}, for each trial"
                if verb in ("cost", "count")
                else f"would {verb} {fact}"
            )
        return None
    arguments.has_sent = True
    tuning = ready.send()
    if arguments.detach:
        print(json.dumps({"tuning": tuning.name}) if arguments.json else tuning.name)
        return None
    # With --json, stdout has only the result.
    shown = Console(stderr=True) if arguments.json else console
    sweep = ready.sweep
    say(f"tuning job {tuning.name}, {arguments.parallel} at a time", shown)
    say(sweep.plan, shown)
    _follow(tuning, shown)
    # Before the table is printed, because this raises if the tuning job failed.
    best = tuning.best
    result = brought(best, arguments.output, shown)
    trials = tuning.trials
    if arguments.json:
        print(
            json.dumps(
                {
                    "tuning": tuning.name,
                    "trials": trials.rows(),
                    "best": best.name,
                    "path": str(result.path),
                }
            )
        )
        return int(bool(trials.failed))
    say(f"\n{trials!r}\n", console)
    say(f"best     {best.name}, {sweep.direction} {sweep.metric}", console)
    print_result(console, result, workload=best.tags.get(WORKLOAD_TAG, ""))
    return int(bool(trials.failed))


def _check(settings: Settings) -> None:
    """Check that no option is set that only jobs have, and that would be ignored silently."""
    if settings.options().get("regions"):
        raise InvalidRequest("--regions is for one job: name one region for all trials, --region")
    for name, flag in (("if_done", "--if-done skip"), ("resume", "--resume")):
        if settings.options().get(name) not in (None, False, "run"):
            raise InvalidRequest(
                f"{flag} is for jobs: a tuning job is always new; to learn from an earlier one, "
                "add --parent NAME"
            )


def _follow(tuning: Tuning, console: Console) -> None:
    with interruptible() as interrupts:
        try:
            interrupts.raise_if_lost()
            tuning.wait(ended=make_reporter(tuning, console))
        except (KeyboardInterrupt, BrokenPipeError):
            if tuning.is_billed:
                say_last(console, f"{tuning.name} keeps running; raysm stop {tuning.name} stops it")
            else:
                say_last(
                    console,
                    f"stopping {tuning.name}: its running trials have time to save their work",
                )
                interrupts.ignore_for(STOPPING_S)
                tuning.stop()
            raise


def make_reporter(tuning: Tuning, console: Console) -> Callable[[Trial], None]:
    def tell(trial: Trial) -> None:
        params = ", ".join(f"{name}={value}" for name, value in trial.params.items())
        # A trial that failed before its first report has none.
        value = "" if trial.value is None else f", {tuning.metric} {trial.value:g}"
        # Only the first line: the trial's own log has the traceback.
        why = f": {trial.reason.splitlines()[0]}" if trial.reason else ""
        say(f"trial {trial.number} {trial.status}{value} ({params}), {trial.host}{why}", console)

    return tell


def run_if_tuning(arguments: Arguments, service: Service, console: Console) -> bool:
    """Run a command on the tuning job that ``arguments.job`` names.

    Return False if there is none.
    """
    tuning = None
    # A ServiceError: no such tuning job, or no permission to read it. Either way there is none.
    with contextlib.suppress(ServiceError):
        tuning = attach_tuning(arguments.job, service)
    if tuning is None:
        return False
    if getattr(arguments, "what", None) is not None:
        raise InvalidRequest(f"{tuning.name} is a tuning job; --what takes one of its trials")
    run_about(arguments, tuning, console)
    return True


def run_about(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    verbs = {"status": _status, "stop": _stop, "result": _result}
    verb = verbs.get(arguments.command)
    if verb is None:
        raise InvalidRequest(
            f"{tuning.name} is a tuning job, and raysm {arguments.command} is for jobs: raysm "
            f"status {tuning.name} lists its trials, each of which is a job"
        )
    verb(arguments, tuning, console)


def _status(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    trials = tuning.trials
    state = _as_dict(tuning, trials)
    if arguments.json:
        print(json.dumps(state, indent=1))
        return
    why = f": {state['reason']}" if state["reason"] else ""
    say(f"tuning job {tuning.name}: {state['status']}{why}\n{trials!r}", console)
    best = state["best"]
    if best is not None:
        direction = "lowest" if tuning.mode == "min" else "highest"
        say(
            f"best     {best}, {direction} {tuning.metric}; raysm result {tuning.name} fetches its "
            "result",
            console,
        )


def _stop(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    # As for a job that has ended: only print how it ended.
    if not tuning.done():
        tuning.stop()
    status = tuning.wait()
    if arguments.json:
        print(json.dumps(_as_dict(tuning, tuning.trials), indent=1))
    else:
        say(f"{tuning.name}: {status}", console)


def _result(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    check_timeout(arguments.timeout)
    check_output(arguments.output)
    shown = Console(stderr=True)
    tuning.wait(
        0.0 if arguments.no_wait else arguments.timeout,
        ended=None if tuning.done() else make_reporter(tuning, shown),
    )
    best = tuning.best
    result = brought(best, arguments.output, shown if arguments.json else console)
    print_result(
        console,
        result,
        workload=best.tags.get(WORKLOAD_TAG, ""),
        as_json=arguments.json,
        bill=best.cost(),
    )


def _as_dict(tuning: Tuning, trials: TrialTable) -> dict[str, Any]:
    described = tuning.describe()
    return {
        "tuning": tuning.name,
        "status": described["HyperParameterTuningJobStatus"],
        "reason": described.get("FailureReason", ""),
        "trials": trials.rows(),
        "best": (described.get("BestTrainingJob") or {}).get("TrainingJobName"),
    }

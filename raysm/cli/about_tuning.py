"""What the commands about jobs do where the name is a tuning job's: status, stop and result."""

import json
from typing import Any

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.console import Console
from raysm.cli.report import brought, print_result
from raysm.cli.submitting import check_output, check_timeout
from raysm.cli.tuning import teller
from raysm.client.sweep_result import TrialTable
from raysm.client.tuning.handle import Tuning
from raysm.contract.names import WORKLOAD_TAG
from raysm.errors import InvalidRequest

__all__ = ["run"]


def run(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    """Do what ``arguments.command`` says of a tuning job.

    Raises:
        InvalidRequest: It is asked of jobs alone.
    """
    verbs = {"status": _status, "stop": _stop, "result": _result}
    verb = verbs.get(arguments.command)
    if verb is None:
        raise InvalidRequest(
            f"{tuning.name} is a tuning job, and raysm {arguments.command} is of jobs: raysm status {tuning.name} "
            "lists its trials, each of which is one"
        )
    verb(arguments, tuning, console)


def _status(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    trials = tuning.trials
    state = _as_dict(tuning, trials)
    if arguments.json:
        print(json.dumps(state, indent=1))
        return
    why = f": {state['reason']}" if state["reason"] else ""
    console.print(Text(f"tuning job {tuning.name}: {state['status']}{why}\n{trials!r}"), soft_wrap=True)
    best = state["best"]
    if best is not None:
        direction = "lowest" if tuning.mode == "min" else "highest"
        text = f"best     {best}, {direction} {tuning.metric}; raysm result {tuning.name} brings what it left"
        console.print(Text(text), soft_wrap=True)


def _stop(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    # As of a job: what has ended is not asked to, and who asks is told how it ended.
    if not tuning.done():
        tuning.stop()
    status = tuning.wait()
    if arguments.json:
        print(json.dumps(_as_dict(tuning, tuning.trials), indent=1))
    else:
        console.print(Text(f"{tuning.name}: {status}"), soft_wrap=True)


def _result(arguments: Arguments, tuning: Tuning, console: Console) -> None:
    check_timeout(arguments.timeout)
    if arguments.output is not None:
        check_output(arguments.output)
    shown = Console(stderr=True)
    tuning.wait(0.0 if arguments.no_wait else arguments.timeout, ended=None if tuning.done() else teller(tuning, shown))
    best = tuning.best
    result = brought(best, arguments.output, shown if arguments.json else console)
    print_result(console, result, workload=best.tags.get(WORKLOAD_TAG, ""), as_json=arguments.json, bill=best.cost())


def _as_dict(tuning: Tuning, trials: TrialTable) -> dict[str, Any]:
    described = tuning.describe()
    return {
        "tuning": tuning.name,
        "status": described["HyperParameterTuningJobStatus"],
        "reason": described.get("FailureReason", ""),
        "trials": trials.rows(),
        "best": (described.get("BestTrainingJob") or {}).get("TrainingJobName"),
    }

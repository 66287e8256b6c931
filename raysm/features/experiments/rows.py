"""The trials of a sweep and the calls of a session as rows of the table of experiments."""

from collections.abc import Iterable
from dataclasses import replace

from raysm.core.client.job.description import Status
from raysm.core.client.job.experiment import Curve, Experiment, Summary, curves_of, summary_of
from raysm.core.protocol.events import Metric, SessionCall, Trial

TRIAL_STATUS = {"done": Status.COMPLETED, "stopped": Status.STOPPED, "failed": Status.FAILED}


def trial_rows(job: Experiment, trials: Iterable[Trial]) -> list[Experiment]:
    latest = {trial.number: trial for trial in trials}
    return [_trial_row(job, latest[number]) for number in sorted(latest)]


def call_rows(
    job: Experiment, calls: Iterable[SessionCall], metrics: Iterable[Metric]
) -> list[tuple[Experiment, dict[str, Curve]]]:
    """Return the calls of a session that reported metrics as rows, each with its curves."""
    latest = {call.number: call for call in calls}
    of_call: dict[int | None, list[Metric]] = {}
    for metric in metrics:
        of_call.setdefault(metric.call, []).append(metric)
    rows = []
    for number, call in sorted(latest.items()):
        curves = curves_of(of_call.get(number, ()))
        params = {"call": call.name, **call.params}
        trial = Trial(number=number, status=call.status, params=params, reason=call.reason)
        row = _trial_row(job, replace(trial, seconds=call.seconds, time_s=call.time_s))
        rows.append(
            (
                replace(row, metrics={name: summary_of(curve) for name, curve in curves.items()}),
                curves,
            )
        )
    return rows


def _trial_row(job: Experiment, trial: Trial) -> Experiment:
    status = TRIAL_STATUS.get(trial.status)
    # If the job ended without the end of a trial, the trial was interrupted and a follow-up job
    # continues it.
    running = Status.STOPPED if job.status.is_terminal else Status.IN_PROGRESS
    ended_s = job.ended_s if status is None else trial.time_s
    return Experiment(
        name=f"{job.name}/{trial.number}",
        arn=f"{job.arn}/{trial.number}",
        trial=trial.number,
        kind=job.kind,
        status=status or running,
        message=trial.reason,
        project=job.project,
        task=job.task,
        workload=job.workload,
        first=job.first,
        parameters=dict(trial.params),
        metrics={
            name: Summary(last=value, lowest=value, highest=value, count=trial.reports)
            for name, value in trial.metrics.items()
        },
        created_s=trial.time_s - trial.seconds,
        started_s=trial.time_s - trial.seconds,
        ended_s=ended_s,
        # Its job is billed: many trials share one cluster.
        is_billed=False,
        code=job.code,
        versions=job.versions,
    )

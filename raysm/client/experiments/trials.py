"""The trials of a sweep as rows of the table, beside those of jobs: what each tried, how well, and how long it took.

Pure: a sweep's row and what its log told of its trials flow in, a row for each trial flows out.
"""

from collections.abc import Iterable

from raysm.client.experiments.curves import Summary
from raysm.client.experiments.experiment import Experiment
from raysm.client.job.description import Status
from raysm.contract.events import Trial

__all__ = ["trial_rows"]

STATUS = {"done": Status.COMPLETED, "stopped": Status.STOPPED, "failed": Status.FAILED}
"""Of a trial that has ended, in the words of jobs: one that was ended early was stopped."""


def trial_rows(job: Experiment, trials: Iterable[Trial]) -> list[Experiment]:
    """Return a row for each trial, by their numbers; of what was told of one the last counts.

    Args:
        job: The sweep's row.
        trials: What its log says, in the order in which it was written.
    """
    latest = {trial.number: trial for trial in trials}
    return [_row(job, latest[number]) for number in sorted(latest)]


def _row(job: Experiment, trial: Trial) -> Experiment:
    status = STATUS.get(trial.status)
    # The job has ended and told no end of it: then it was interrupted, and a follow-up job goes on with it.
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
        # Its job is: of one cluster that many trials share nobody knows which part one of them has cost.
        is_billed=False,
        code=job.code,
        versions=job.versions,
    )

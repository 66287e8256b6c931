"""TrainingJobEarlyStoppingType ``Auto``: what the trials reported flows in, whether one of them falls behind flows out.

As AWS describes it (https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning-early-stopping.html): after
each epoch, the running average of the objective of all earlier training jobs up to the same epoch; their median; a job
that is worse is stopped. An epoch is a report of the objective.
"""

import statistics
from collections.abc import Sequence

from raysm.local.server.tuning.trial import Trial

__all__ = ["falls_behind"]

LEAST = 3
"""Trials that must have ended before one is judged by them: by one or two, chance would decide."""


def falls_behind(trial: Trial, trials: Sequence[Trial]) -> bool:
    """Whether a trial that runs is worse than the median of those that have ended, up to its last report."""
    reports = len(trial.losses)
    if not reports:
        return False
    averages = [
        statistics.fmean(one.losses[:reports]) for one in trials if one.loss is not None and len(one.losses) >= reports
    ]
    return len(averages) >= LEAST and trial.losses[-1] > statistics.median(averages)

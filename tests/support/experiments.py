"""Rows of the table of experiments, for tests."""

from raysm.core.client.job.description import SecondaryStatus, Status
from raysm.core.client.job.experiment import Experiment, Summary


def row(**fields):
    fields = {
        "name": "digits-1",
        "arn": "arn:1",
        "kind": "training",
        "status": Status.COMPLETED,
    } | fields
    return Experiment(**fields)


FULL = row(
    secondary=SecondaryStatus.COMPLETED,
    project="digits",
    parameters={"lr": 0.1, "fast": True, "model": "resnet"},
    metrics={"loss": Summary(last=0.5, lowest=0.25, highest=2.0, count=9, step=8)},
    instances=(("ml.m5.large", 2),),
    created_s=1_800_000_000.0,
    started_s=1_800_000_060.0,
    ended_s=1_800_000_160.0,
    cost_usd=0.25,
    versions={"raysm": "0.1.0"},
)

"""Tuning jobs of a SageMaker that answers as the test says."""

import datetime

import raysm
from raysm.core.client.service import Service
from raysm.core.client.targets.connection import Polling
from raysm.features.sweep.tuning import Tuning

BEGAN = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
SPACE = {"lr": raysm.uniform(0, 1), "depth": raysm.choice([2, None])}


class SageMaker:
    """Answers by the statuses and pages of the test, one after the other; the last one stays."""

    def __init__(self, statuses=("Completed",), pages=((),), **described):
        self.statuses, self.pages, self.described, self.stopped = (
            list(statuses),
            list(pages),
            described,
            [],
        )

    def create_hyper_parameter_tuning_job(self, **request):
        return {}

    def describe_hyper_parameter_tuning_job(self, **request):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return {"HyperParameterTuningJobStatus": status, **self.described}

    def stop_hyper_parameter_tuning_job(self, **request):
        self.stopped.append(request["HyperParameterTuningJobName"])

    def list_training_jobs_for_hyper_parameter_tuning_job(self, **request):
        number = int(request.get("NextToken", 0))
        more = {"NextToken": str(number + 1)} if number + 1 < len(self.pages) else {}
        return {"TrainingJobSummaries": list(self.pages[number]), **more}


def scripted_tuning(sagemaker):
    """Return the handle on the tuning job ``tuned`` of a scripted SageMaker."""
    service = Service(
        raysm.Local(), clients=lambda name: sagemaker, polling=Polling(first_s=0.001, most_s=0.001)
    )
    sweep = raysm.Sweep("train.py", space=SPACE, metric="loss", mode="min").workload()
    parsers = {name: parameter.read for name, parameter in sweep.space.items()}
    return Tuning("tuned", sweep.metric, sweep.mode, parsers, service)


def summary(number, status="Completed", value=None, **fields):
    final = (
        {} if value is None else {"FinalHyperParameterTuningJobObjectiveMetric": {"Value": value}}
    )
    return {
        "TrainingJobName": f"tuned-00{number + 1}-abc",
        "TrainingJobStatus": status,
        "CreationTime": BEGAN,
        "TunedHyperParameters": {"lr": "0.5", "depth": "null"},
        **final,
        **fields,
    }

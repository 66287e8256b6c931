"""Requests for tuning jobs, and training jobs that only say what became of them."""

import io
import tarfile
from dataclasses import replace

from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord
from tests.support.sagemaker_server import BUCKET, ROLE


def categorical(name, *values):
    return {"Name": name, "Values": list(values)}


def integer(name, low=1, high=10, scale=None):
    return {"Name": name, "MinValue": str(low), "MaxValue": str(high), **({"ScalingType": scale} if scale else {})}


def continuous(name, low=0.0, high=1.0, scale=None):
    return integer(name, low, high, scale)


def tuning_config(strategy="Random", jobs=4, parallel=2, ranges=None, **fields):
    limits = {"MaxParallelTrainingJobs": parallel, **({} if jobs is None else {"MaxNumberOfTrainingJobs": jobs})}
    return {
        "Strategy": strategy,
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {**limits, **fields.pop("limits", {})},
        "ParameterRanges": {"ContinuousParameterRanges": [continuous("lr")]} if ranges is None else ranges,
        "RandomSeed": 1,
        **fields,
    }


def job_definition(**fields):
    return {
        "StaticHyperParameters": {"sagemaker_program": "train.py"},
        "AlgorithmSpecification": {
            "TrainingImage": "image:1",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*?);"}],
        },
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 100},
        **fields,
    }


def tuning_request(name="tuned", *, definition=None, tags=None, warm=None, **config):
    return {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": tuning_config(**config),
        "TrainingJobDefinition": job_definition() if definition is None else definition,
        **({"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else {}),
        **({"WarmStartConfig": warm} if warm else {}),
    }


def archive(script):
    """Return a script as the SDK packs one: ``train.py`` in a tar.gz."""
    content, held = script.encode(), io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as file:
        item = tarfile.TarInfo("train.py")
        item.size = len(content)
        file.addfile(item, io.BytesIO(content))
    return held.getvalue()


class TrainingJobs:
    """Takes the place of the server's training jobs: the test says what they report, and how they end."""

    def __init__(self, clock):
        self._clock = clock
        self.records, self.values, self.refusal = {}, {}, None

    def launch(self, request, region, tuning_job):
        if self.refusal is not None:
            raise self.refusal
        name = request["TrainingJobName"]
        self.records[name] = JobRecord(
            kind="training",
            name=name,
            arn=f"arn:{name}",
            region=region,
            request=request,
            tuning_job=tuning_job,
            created_s=self._clock.now(),
            modified_s=self._clock.now(),
        )

    def training_job(self, name, region):
        if name not in self.records:
            raise ApiError("ValidationException", "Requested resource not found.")
        return self.records[name]

    def reported(self, name, region, metric):
        return self.values.get(name, ())

    def stop_training(self, name, region):
        self.records[name] = replace(self.records[name], status="Stopping")

    # -- what the test says

    def running(self):
        return [name for name, record in self.records.items() if not record.final]

    def report(self, name, *values):
        self.values[name] = (*self.values.get(name, ()), *values)

    def end(self, name, status="Completed", reason=None):
        values = self.values.get(name, ())
        metrics = tuple({"MetricName": "loss", "Value": value, "Timestamp": 0} for value in values[-1:])
        self.records[name] = replace(
            self.records[name], status=status, metrics=metrics, failure_reason=reason, ended_s=self._clock.now()
        )

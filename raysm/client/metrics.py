"""The metrics that the service finds in a job's log by its definitions: CloudWatch's series, and the last values.

What flows in is a Description, what flows out are the same Metric values that raysm's own events are.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from raysm.client.description import Description
from raysm.client.service import Service
from raysm.contract.events import Metric

__all__ = ["found_by_service"]

NAMESPACE = "/aws/sagemaker/TrainingJobs"

PERIOD_S = 60
"""CloudWatch keeps one value for each minute, and no finer."""

MAX_POINTS = 1440
"""CloudWatch returns at most so many values of a series."""


def found_by_service(service: Service, job: Description) -> Iterator[Metric]:
    """Yield the values of the job's metric definitions: by the minute, and where that is nothing, the last one."""
    final = {item["MetricName"]: item for item in job.answer.get("FinalMetricDataList", ())}
    defined = job.answer.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
    for name in dict.fromkeys([*(item["Name"] for item in defined), *final]):
        series = list(_series(service, job, name)) if job.created is not None and job.started is not None else []
        yield from series
        if not series and name in final:
            time = final[name].get("Timestamp")
            yield Metric(name=name, value=final[name]["Value"], time_s=time.timestamp() if time else 0.0)


def _series(service: Service, job: Description, name: str) -> Iterator[Metric]:
    assert job.created is not None
    end = (job.ended or datetime.now(UTC)) + timedelta(seconds=PERIOD_S)
    minutes = math.ceil((end - job.created).total_seconds() / PERIOD_S / MAX_POINTS)
    answer = service.call(
        "cloudwatch",
        "get_metric_statistics",
        Namespace=NAMESPACE,
        MetricName=name,
        Dimensions=[{"Name": "TrainingJobName", "Value": job.name}],
        StartTime=job.created,
        EndTime=end,
        Period=PERIOD_S * max(1, minutes),
        Statistics=["Average"],
    )
    for point in sorted(answer.get("Datapoints", ()), key=lambda point: point["Timestamp"]):
        yield Metric(name=name, value=point["Average"], time_s=point["Timestamp"].timestamp())

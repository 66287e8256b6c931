"""What List and Describe answer of a job, whichever API runs it: what flows in is its record, what flows out is JSON.

All that is known is offered, and botocore's model of the answer takes what that API tells of a job: so what flows out
is what AWS would say, and no API needs a list of its own.
"""

from collections.abc import Mapping
from typing import Any

from raysm.contract.service_model import service_model
from raysm.local.server.records import JobRecord, Transition

__all__ = ["describe", "summarize"]

SWITCHES = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")
"""What Describe says of a job whose request said nothing of it."""


def describe(record: JobRecord) -> Mapping[str, Any]:
    """Return what Describe answers."""
    shape = service_model().operation_model(record.api.describe).output_shape
    seconds = billed_s = None
    if record.final and record.training_s:
        # An attempt may take less than a second, of which AWS bills one.
        seconds, billed_s = (max(1, round(record.training_s * share)) for share in (1.0, 1.0 - record.spot_saving))
    values = {
        **{switch: False for switch in SWITCHES},
        # Behind the switches: what the request does say replaces them.
        **record.request,
        **_state(record),
        record.api.start_time_key: record.started_s,
        "ModelArtifacts": {"S3ModelArtifacts": record.artifacts} if record.artifacts else None,
        "SecondaryStatusTransitions": [_transition(item) for item in record.transitions],
        "FinalMetricDataList": list(record.metrics) or None,
        "TrainingTimeInSeconds": seconds,
        "BillableTimeInSeconds": billed_s,
    }
    return _told(values, shape.members)


def summarize(record: JobRecord) -> Mapping[str, Any]:
    """Return what List says of the job."""
    return _told(_state(record), service_model().shape_for(record.api.summary_shape).members)


def _state(record: JobRecord) -> dict[str, Any]:
    api = record.api
    return {
        api.name_key: record.name,
        api.arn_key: record.arn,
        api.status_key: record.status,
        "SecondaryStatus": record.secondary,
        "FailureReason": record.failure_reason,
        "ExitMessage": record.exit_message,
        "CreationTime": record.created_s,
        api.end_time_key: record.ended_s,
        "LastModifiedTime": record.modified_s,
        "WarmPoolStatus": record.warm_pool,
    }


def _told(values: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and name in members}


def _transition(item: Transition) -> dict[str, Any]:
    parts = {"Status": item.status, "StartTime": item.start_s, "EndTime": item.end_s, "StatusMessage": item.message}
    return {key: value for key, value in parts.items() if value is not None}

"""Answers of List and Describe: filters, pages, tags, and the fields of botocore's model of the answer."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from raysm.core.protocol.service_model import service_model
from raysm.local.server.records import JobRecord, Transition
from raysm.local.server.validation import validation

STATUS = "StatusEquals"
PAGE = 10
SWITCHES = (
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
)
"""Fields that Describe reports even if the request has none."""

Item = TypeVar("Item")


def matches(record: JobRecord, request: Mapping[str, Any]) -> bool:
    tests: dict[str, Callable[[Any], bool]] = {
        "CreationTimeAfter": lambda at: record.created_s >= at,
        "CreationTimeBefore": lambda at: record.created_s <= at,
        "LastModifiedTimeAfter": lambda at: record.modified_s >= at,
        "LastModifiedTimeBefore": lambda at: record.modified_s <= at,
        "NameContains": lambda part: part.lower() in record.name.lower(),
        STATUS: lambda status: record.status == status,
        # Warm pools are not emulated.
        "WarmPoolStatusEquals": lambda status: False,
        "TrainingPlanArnEquals": lambda arn: (
            record.request["ResourceConfig"].get("TrainingPlanArn") == arn
        ),
    }
    return all(test(request[name]) for name, test in tests.items() if request.get(name) is not None)


def page_of(
    items: list[Item],
    request: Mapping[str, Any],
    position: Callable[[Item], list[Any]],
    *,
    is_descending: bool = False,
) -> tuple[list[Item], dict[str, str]]:
    """Return one page, and the token of the next one.

    The token has the position of the last item, so that neither new items nor one that no longer
    passes the filter shift the next page.

    Args:
        items: All items, in the order of their positions.
        request: Its ``NextToken`` and ``MaxResults`` are read.
        position: Returns what an item is sorted by, as JSON can hold it; no two items have the
            same.
        is_descending: The items are in descending order.

    Raises:
        ApiError: The token is not one of this function.
    """
    rest = items
    if token := request.get("NextToken"):
        try:
            last = json.loads(base64.urlsafe_b64decode(token))["after"]
            if is_descending:
                rest = [item for item in items if position(item) < last]
            else:
                rest = [item for item in items if position(item) > last]
        except (ValueError, KeyError, TypeError):
            raise validation("Invalid NextToken") from None
    count = int(request.get("MaxResults") or PAGE)
    page = rest[:count]
    if count >= len(rest):
        return page, {}
    after = json.dumps({"after": position(page[-1])})
    return page, {"NextToken": base64.urlsafe_b64encode(after.encode()).decode()}


def tags_of(tags: list[Mapping[str, str]]) -> dict[str, str]:
    """Return tags by their keys; raise ApiError for two tags with the same key."""
    by_key = {tag["Key"]: tag["Value"] for tag in tags}
    if len(by_key) != len(tags):
        raise validation("Tags: duplicate tag keys are not allowed")
    return by_key


def listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def describe(record: JobRecord) -> Mapping[str, Any]:
    shape = service_model().operation_model(record.api.describe).output_shape
    seconds = billed_s = None
    if record.final and record.training_s:
        # AWS bills at least one second.
        seconds, billed_s = (
            max(1, round(record.training_s * share)) for share in (1.0, 1.0 - record.spot_saving)
        )
    values = {
        **{switch: False for switch in SWITCHES},
        **record.request,
        **_state(record),
        record.api.start_time_key: record.started_s,
        "ModelArtifacts": {"S3ModelArtifacts": record.artifacts} if record.artifacts else None,
        "SecondaryStatusTransitions": [_transition(item) for item in record.transitions],
        "FinalMetricDataList": list(record.metrics) or None,
        "TrainingTimeInSeconds": seconds,
        "BillableTimeInSeconds": billed_s,
    }
    return _of_shape(values, shape.members)


def summarize(record: JobRecord) -> Mapping[str, Any]:
    return _of_shape(_state(record), service_model().shape_for(record.api.summary_shape).members)


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
    }


def _of_shape(values: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and name in members}


def _transition(item: Transition) -> dict[str, Any]:
    parts = {
        "Status": item.status,
        "StartTime": item.start_s,
        "EndTime": item.end_s,
        "StatusMessage": item.message,
    }
    return {key: value for key, value in parts.items() if value is not None}

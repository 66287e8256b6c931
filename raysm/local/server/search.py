"""SageMaker's Search over training jobs.

It follows https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_Search.html and the pages of SearchExpression,
Filter and NestedFilters, and refuses the parts of them that are not emulated.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from raysm.contract.service_model import service_model
from raysm.local.server.answers import describe, listed, page_of
from raysm.local.server.records import JobRecord
from raysm.local.server.validation import ApiError, validation

__all__ = ["is_ours", "search"]

RESOURCE = "TrainingJob"

MOTOS = (
    "Endpoint",
    "Experiment",
    "ExperimentTrial",
    "ExperimentTrialComponent",
    "FeatureGroup",
    "ModelPackage",
    "ModelPackageGroup",
    "Pipeline",
    "PipelineExecution",
)
"""Resources that moto keeps and searches."""

NOT_EMULATED = ("CrossAccountFilterOption", "VisibilityConditions")

ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": lambda value, bound: value > bound,
    "GreaterThanOrEqualTo": lambda value, bound: value >= bound,
    "LessThan": lambda value, bound: value < bound,
    "LessThanOrEqualTo": lambda value, bound: value <= bound,
}
"""Operators that need numbers or times."""

MAPS = ("HyperParameters", "Environment")
"""Properties whose keys the user chooses; a key may hold a dot."""


def is_ours(request: Mapping[str, Any]) -> bool:
    """Return whether moto cannot answer this request."""
    return request.get("Resource") not in MOTOS


def search(records: Sequence[JobRecord], request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer Search for the training jobs among ``records``.

    Raises:
        ApiError: A property does not exist, or a part of the request is not emulated.
    """
    if request["Resource"] != RESOURCE:
        message = f"the embedded SageMaker does not emulate Search for {request['Resource']}, only for {RESOURCE}"
        raise ApiError("NotImplementedException", message)
    for name in NOT_EMULATED:
        if request.get(name) not in (None, "SameAccount"):
            raise ApiError("NotImplementedException", f"the embedded SageMaker does not emulate Search with {name}")
    expression = request.get("SearchExpression") or {}
    _check(expression)
    if _count_contains(expression) > 1:
        raise validation("'CONTAINS' operator usage limit of 1 exceeded.")
    found = [job for job in map(_job, records) if _matches(job, expression)]
    by = request.get("SortBy") or "LastModifiedTime"
    _check_name(by)
    # By the name too: jobs of one moment must not change places between two pages.
    key = lambda job: (_sort_key(_value(job, by)), job["TrainingJobName"])  # noqa: E731
    found.sort(key=key, reverse=request.get("SortOrder") != "Ascending")
    page, more = page_of(found, request, lambda job: str(job["TrainingJobName"]))
    members = service_model().shape_for(RESOURCE).members
    results = [{RESOURCE: {name: value for name, value in job.items() if name in members}} for job in page]
    return {"Results": results, "TotalHits": {"Value": len(found), "Relation": "EqualTo"}, **more}


def _job(record: JobRecord) -> dict[str, Any]:
    return {**describe(record), "Tags": listed(record.tags)}


def _check(expression: Mapping[str, Any]) -> None:
    """Refuse properties that do not exist, whether or not a job would be compared by them."""
    for each in expression.get("Filters") or ():
        _check_name(each["Name"])
    for nested in expression.get("NestedFilters") or ():
        shape = service_model().shape_for(RESOURCE).members.get(nested["NestedPropertyName"])
        if shape is None or shape.type_name != "list":
            raise validation(f"Unknown nested property name: {nested['NestedPropertyName']}")
        for each in nested["Filters"]:
            if each["Name"].partition(".")[0] != nested["NestedPropertyName"]:
                raise validation(f"Unknown property name: {each['Name']} in {nested['NestedPropertyName']}")
    for inner in expression.get("SubExpressions") or ():
        _check(inner)


def _count_contains(expression: Mapping[str, Any]) -> int:
    filters = [*(expression.get("Filters") or ())]
    filters += [each for nested in expression.get("NestedFilters") or () for each in nested["Filters"]]
    own: int = sum(each.get("Operator") == "Contains" for each in filters)
    return own + sum(_count_contains(inner) for inner in expression.get("SubExpressions") or ())


def _check_name(name: str) -> None:
    first, _, rest = name.partition(".")
    if first in ("Metrics", "Tags", *MAPS) and rest:
        return
    shape = service_model().shape_for(RESOURCE)
    for part in name.split("."):
        shape = shape.members.get(part) if shape.type_name == "structure" else None
        if shape is None:
            raise validation(f"Unknown property name: {name}")


def _matches(job: Mapping[str, Any], expression: Mapping[str, Any]) -> bool:
    answers = [*_answers(job, expression)]
    # An expression without a part selects everything.
    return any(answers) if expression.get("Operator") == "Or" and answers else all(answers)


def _answers(job: Mapping[str, Any], expression: Mapping[str, Any]) -> Iterator[bool]:
    for each in expression.get("Filters") or ():
        yield _holds(_value(job, each["Name"]), each)
    for nested in expression.get("NestedFilters") or ():
        items = job.get(nested["NestedPropertyName"]) or ()
        # All of its filters have to hold for the same item of the list.
        yield any(
            all(_holds(_value(item, each["Name"].partition(".")[2]), each) for each in nested["Filters"])
            for item in items
        )
    for inner in expression.get("SubExpressions") or ():
        yield _matches(job, inner)


def _value(job: Mapping[str, Any], name: str) -> Any:
    """Return a property of a job; None where it has none."""
    first, _, rest = name.partition(".")
    if first == "Tags" and rest:
        return next((tag["Value"] for tag in job["Tags"] if tag["Key"] == rest), None)
    if first == "Metrics":
        metrics = job.get("FinalMetricDataList") or ()
        return next((metric["Value"] for metric in metrics if metric["MetricName"] == rest), None)
    if first in MAPS and rest:
        return (job.get(first) or {}).get(rest)
    value: Any = job
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _holds(value: Any, each: Mapping[str, Any]) -> bool:
    operator = each.get("Operator") or "Equals"
    if operator in ("Exists", "NotExists"):
        if "Value" in each:
            raise validation(f"{operator} takes no Value, got {each['Value']!r} for {each['Name']}")
        return (value is not None) == (operator == "Exists")
    wanted = each.get("Value")
    if wanted is None:
        raise validation(f"the filter of {each['Name']} has no Value, which {operator} needs")
    if operator in ORDERED:
        return value is not None and _is_ordered(ORDERED[operator], value, wanted, each["Name"])
    if operator == "NotEquals":
        return not _equals(value, wanted, each["Name"])
    if operator == "Equals":
        return _equals(value, wanted, each["Name"])
    if value is not None and not isinstance(value, str):
        raise validation(f"{operator} is only for text, and {each['Name']} is none")
    if operator == "In":
        return value in [part.strip() for part in wanted.split(",")]
    return value is not None and wanted in value


def _equals(value: Any, wanted: str, name: str) -> bool:
    if value is None or isinstance(value, str):
        return bool(value == wanted)
    if isinstance(value, bool):
        return str(value).lower() == wanted.lower()
    if isinstance(value, int | float):
        return bool(value == _number(wanted, name))
    raise validation(f"{name} has parts: name one of them")


def _is_ordered(compare: Callable[[Any, Any], bool], value: Any, wanted: str, name: str) -> bool:
    if isinstance(value, str) and name.startswith("HyperParameters."):
        # Hyperparameters are text for the service; one that is no number is in no order.
        try:
            value = float(value)
        except ValueError:
            return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise validation(f"{name} is neither a number nor a time, and has no order")
    return compare(value, _number(wanted, name))


def _number(text: str, name: str) -> float:
    """Return a number, or a time in ISO 8601 as seconds since the epoch; times without a zone are UTC."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise validation(
            f"{name} is compared with {text!r}, which is neither a number nor a time in ISO 8601"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()


def _sort_key(value: Any) -> tuple[bool, bool, Any]:
    """Order what is missing first, then numbers and times, then texts."""
    is_text = isinstance(value, str)
    return value is not None, is_text, value if is_text or isinstance(value, int | float) else 0

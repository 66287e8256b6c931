"""Refusals in AWS's words, and the check of a request against botocore's model.

boto3 checks only a part of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from raysm.core.protocol.job_api import JobApi
from raysm.core.protocol.service_model import (
    Entry,
    Key,
    Rule,
    Step,
    Violation,
    may_be_newer,
    violations,
)
from raysm.core.protocol.service_rules import breaches

MOST_SHOWN = 10
LONGEST_SHOWN = 300

NOUNS: Mapping[str, str] = {
    "structure": "a structure",
    "list": "a list",
    "map": "a map",
    "string": "a string",
    "boolean": "a boolean",
    "timestamp": "a timestamp",
}


class ApiError(Exception):
    """A refusal that the caller receives; ``code`` is AWS's, ``status`` HTTP's."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def validation(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def not_found(what: str = "") -> ApiError:
    """Return SageMaker's refusal for a job that does not exist.

    SageMaker answers with a ValidationException, for historical reasons.
    """
    return validation("Requested resource not found." + (f" ({what})" if what else ""))


def check(operation: str, request: Any) -> None:
    """Check the whole request against the model.

    Raise ApiError (ValidationException) in SageMaker's words.
    """
    refuse(violations(operation, request, takes_files=True), validation)


def refuse(broken: Iterable[Violation], error: Callable[[str], ApiError]) -> None:
    """Raise the service's own ``error`` for a request with violations."""
    wrong = [_message(violation) for violation in broken if not _may_pass(violation)]
    if wrong:
        # The number includes violations that are not shown.
        shown = "; ".join(wrong[:MOST_SHOWN])
        raise error(f"{len(wrong)} validation error{'s'[: len(wrong) > 1]} detected: {shown}")


def _may_pass(violation: Violation) -> bool:
    # SageMaker ignores unknown members; they, and unknown instance types, may belong to a newer
    # model.
    if violation.rule is Rule.VALUES:
        return may_be_newer(violation.path, violation.value)
    return violation.rule is Rule.UNKNOWN


def check_rules(api: JobApi, request: Mapping[str, Any]) -> None:
    for breach in breaches(api, request):
        raise ApiError(
            "ResourceLimitExceeded" if breach.is_quota else "ValidationException", breach.message
        )


def _message(violation: Violation) -> str:
    path = ".".join(map(_step, violation.path)) or "request"
    shown = str(violation.value)[:LONGEST_SHOWN]
    if violation.rule is Rule.MISSING:
        return f"Value null at '{path}' failed to satisfy constraint: Member must not be null"
    if violation.rule is Rule.TYPE:
        return f"Value '{shown}' at '{path}' must be {NOUNS.get(violation.type_name, 'a number')}"
    what = "length" if hasattr(violation.value, "__len__") else "value"
    constraints = {
        Rule.LEAST: f"have {what} greater than or equal to {violation.least}",
        Rule.MOST: f"have {what} less than or equal to {violation.most}",
        Rule.VALUES: f"satisfy enum value set: [{', '.join(violation.values)}]",
    }
    pattern = f"satisfy regular expression pattern: {violation.pattern}"
    constraint = constraints.get(violation.rule, pattern)
    return f"Value '{shown}' at '{path}' failed to satisfy constraint: Member must {constraint}"


def _step(step: Step) -> str:
    match step:
        case int():
            # SageMaker counts members from 1.
            return f"{step + 1}.member"
        case Key():
            return "key"
        case Entry(key):
            return f"{key}.member"
        case _:
            # SageMaker's messages begin a member with a lower-case letter, ``hyperParameters``.
            return step[:1].lower() + step[1:]

"""What the operations that list have in common: filters, pages, and tags as the API writes them."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from raysm.local.server.api_error import validation

__all__ = ["STATUS", "Listed", "listed", "matches", "page_of", "tags_of"]

STATUS = "StatusEquals"
PAGE = 10
"""Items on a page where the request does not say."""

Item = TypeVar("Item")


class Listed(Protocol):
    """What is listed, whichever kind of job it is."""

    @property
    def name(self) -> str:
        """Of the job."""

    @property
    def status(self) -> str:
        """Of the job."""

    @property
    def created_s(self) -> float:
        """Since the epoch."""

    @property
    def modified_s(self) -> float:
        """Since the epoch."""


def matches(item: Listed, request: Mapping[str, Any]) -> bool:
    """Whether a job is one that a request wants listed, by the filters that every List has."""
    tests: dict[str, Callable[[Any], bool]] = {
        "CreationTimeAfter": lambda at: item.created_s >= at,
        "CreationTimeBefore": lambda at: item.created_s <= at,
        "LastModifiedTimeAfter": lambda at: item.modified_s >= at,
        "LastModifiedTimeBefore": lambda at: item.modified_s <= at,
        "NameContains": lambda part: part.lower() in item.name.lower(),
        STATUS: lambda status: item.status == status,
    }
    return all(test(request[name]) for name, test in tests.items() if request.get(name) is not None)


def page_of(
    items: list[Item], request: Mapping[str, Any], name: Callable[[Item], str]
) -> tuple[list[Item], dict[str, str]]:
    """Return one page, and the token of the next one: the last item's name, so that new ones do not shift it."""
    start = 0
    token = request.get("NextToken")
    if token:
        try:
            last = json.loads(base64.urlsafe_b64decode(token))["after"]
            start = [name(item) for item in items].index(last) + 1
        except (ValueError, KeyError, TypeError):
            raise validation("Invalid NextToken") from None
    end = start + int(request.get("MaxResults") or PAGE)
    page = items[start:end]
    if end >= len(items):
        return page, {}
    return page, {"NextToken": base64.urlsafe_b64encode(json.dumps({"after": name(page[-1])}).encode()).decode()}


def tags_of(tags: list[Mapping[str, str]]) -> dict[str, str]:
    """Return tags by their keys.

    Raises:
        ApiError: There are two of one key.
    """
    by_key = {tag["Key"]: tag["Value"] for tag in tags}
    # The dict has kept the last of two with the same key without a word.
    if len(by_key) != len(tags):
        raise validation("Tags: duplicate tag keys are not allowed")
    return by_key


def listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as the API lists them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]

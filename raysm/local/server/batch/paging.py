"""Pages of Batch's lists: items flow in, one page and the token of the next flow out."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from raysm.local.server.listing import page_of

__all__ = ["page_under"]

Item = TypeVar("Item")
PAGE = 100


def page_under(
    key: str, items: list[Item], request: Mapping[str, Any], name: Callable[[Item], str], show: Callable[[Item], Any]
) -> dict[str, Any]:
    """Return the answer that has a page of ``items`` under ``key``, each as ``show`` has it."""
    # Batch begins its keys with a small letter, and takes a page of 100 for granted.
    page_request = {"NextToken": request.get("nextToken"), "MaxResults": request.get("maxResults") or PAGE}
    page, more = page_of(items, page_request, name)
    answer: dict[str, Any] = {key: [show(item) for item in page]}
    return answer | ({"nextToken": more["NextToken"]} if more else {})

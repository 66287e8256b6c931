"""The service's list of jobs, several stretches of time at once.

A list comes in pages of a hundred, each of which names the next: a thousand jobs are ten calls, one after the other.
When jobs were sent that are known from before cuts the time into stretches of less than a page, which are asked for at
once. What flows in are those times, what flows out is what the service lists, the latest first.
"""

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from raysm.client.service import Service
from raysm.client.storage.s3 import in_parallel
from raysm.contract.job_api import JobApi

__all__ = ["Stretch", "listed", "stretches"]

EVERY = 1_000_000
"""Jobs that a list is asked for where all may be wanted; it is read page by page."""

IN_A_STRETCH = 80
"""Known jobs; with those that are new, and those of both its neighbours' edges, it is still one page."""

AT_ONCE = 5
"""Lists under way. AWS does not say how many it takes in a second; boto3 waits where they were too many."""

EDGE = timedelta(seconds=1)
"""By so much stretches overlap: a time travels in whole seconds, and the documentation does not say whether the bounds
themselves are in (https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ListTrainingJobs.html)."""


class Stretch(NamedTuple):
    """Jobs that were sent between two moments; None is without a bound."""

    after: datetime | None
    before: datetime | None


def stretches(sent_s: Iterable[float]) -> list[Stretch]:
    """Return stretches that together have all of time, the latest first.

    Args:
        sent_s: When known jobs were sent, in seconds since the epoch.
    """
    cuts = sorted(sent_s, reverse=True)[IN_A_STRETCH::IN_A_STRETCH]
    bounds = [datetime.fromtimestamp(cut, UTC) for cut in cuts]
    return [
        Stretch(None if after is None else after - EDGE, None if before is None else before + EDGE)
        for before, after in itertools.pairwise([None, *bounds, None])
    ]


def listed(service: Service, api: JobApi, *, contains: str | None, sent_s: Iterable[float]) -> Iterator[dict[str, Any]]:
    """Yield what the service lists, each job once, the latest first; as far as somebody reads on.

    Args:
        service: Where.
        api: Of which kind of jobs.
        contains: Part of the name.
        sent_s: When the jobs were sent that are known, at most as many as are wanted.

    Raises:
        ServiceError: The service does not list its jobs.
    """

    def of(stretch: Stretch) -> Iterator[dict[str, Any]]:
        return service.summaries(api, contains=contains, limit=EVERY, sent=stretch)

    *bounded, last = stretches(sent_s)
    arns: set[str] = set()
    for wave in (bounded[first : first + AT_ONCE] for first in range(0, len(bounded), AT_ONCE)):
        for page in in_parallel(lambda stretch: list(of(stretch)), wave):
            yield from _new(api, page, arns)
    # It has no end: its pages come as they are read.
    yield from _new(api, of(last), arns)


def _new(api: JobApi, items: Iterable[dict[str, Any]], arns: set[str]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item[api.arn_key] not in arns:
            arns.add(item[api.arn_key])
            yield item

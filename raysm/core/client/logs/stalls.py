"""Find in the newest lines of a job's log whether it has stalled.

It has stalled if no sign of life follows the head's event.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from raysm.core.client.job.chain import Chain
from raysm.core.client.logs.stream import STREAM
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import in_parallel
from raysm.core.protocol.events import State, is_usage, parse
from raysm.core.protocol.names import natural
from raysm.errors import ServiceError

FIRST_PAGE = 100
MAX_PAGES = 5
"""Of at most 1 MB each: what instances report about their use, since a stall of hours began."""
MAX_STREAMS = 8
"""Instances whose log is read; the head is nearly always the first."""
OWN_LINE = "raysm: "
"""The beginning of lines of the bootstraps, which are no sign of life."""


def find_stall(chain: Chain) -> str:
    """Return the sentence on a running job's stall, who waits where; "" if it has not stalled."""
    if chain.describe().status.is_terminal:
        return ""
    service = chain.service
    group = chain.api.log_group
    prefix = {"logGroupName": group, "logStreamNamePrefix": f"{chain.name}/"}
    try:
        pages = service.pages("logs", "describe_log_streams", token="nextToken", **prefix)
        names = [stream["logStreamName"] for page in pages for stream in page.get("logStreams", ())]
        streams = [name for name in names if STREAM.fullmatch(name.removeprefix(f"{chain.name}/"))]
        found = in_parallel(
            lambda stream: _find_in(service, group, stream),
            sorted(streams, key=natural)[:MAX_STREAMS],
        )
    except ServiceError:
        # A user without access to the log still gets the status of the job.
        return ""
    return next(filter(None, found), "")


def _find_in(service: Service, group: str, stream: str) -> str:
    for event in _backwards(service, group, stream):
        message = event["message"]
        match parse(message):
            case State(name="stalled", detail=sentence):
                return sentence
            case State() | None if not message.startswith(OWN_LINE):
                return ""
            case found if found is not None and not is_usage(found):
                return ""
    return ""


def _backwards(service: Service, group: str, stream: str) -> Iterator[Mapping[str, Any]]:
    query: dict[str, Any] = {"logGroupName": group, "logStreamName": stream, "limit": FIRST_PAGE}
    for _ in range(MAX_PAGES):
        page = service.call("logs", "get_log_events", startFromHead=False, **query)
        yield from reversed(page.get("events", ()))
        following = page.get("nextBackwardToken")
        if following is None or following == query.get("nextToken"):
            return
        query = {"logGroupName": group, "logStreamName": stream, "nextToken": following}

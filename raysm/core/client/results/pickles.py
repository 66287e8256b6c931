"""Read a pickle that a job left, after comparing it with the digest in the job's log.

Unpickling runs code. People who may write to a job's outputs could replace a pickle there, but they
cannot write into the job's log, where the driver has put the digest. A local job's outputs lie in
raysm's home, to which only its owner
may write: they are read as they are.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raysm.core.client.job.chain import Chain
from raysm.core.client.logs.stream import STREAM
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage, file_path, in_parallel
from raysm.core.protocol.events import MARK, Digest, parse
from raysm.core.protocol.trust import is_trusted_owner
from raysm.errors import ServiceError

MAX_PAGES = 20
"""Pages of a stream that are searched, from its end: the digest is among the job's last lines."""

OF_TASK = re.compile(r"\([^()]*\bpid=")
"""What Ray puts before each line of a task or an actor."""

LOOK_S = 1.0
"""Pause between two looks for lines that may still arrive."""


class Unverified(ServiceError):
    """A pickle differs from its digest in the job's log, or the log has none; nothing of it was read."""


def read_pickle(uri: str, name: str, chain: Chain, *, unverified: bool) -> bytes | None:
    """Return the pickle at ``uri``, whose digest the log has under ``name``; None if there is no such object.

    Raises:
        Unverified: Its digest differs; or the log has none, unless ``unverified`` is True.
    """
    service = chain.service
    if _is_in_home(uri, service):
        return _read_own(file_path(uri))
    content = Storage(service).read(uri)
    if content is None:
        return None
    actual = hashlib.sha256(content).hexdigest()
    expected = _digest_in_log(chain, name, actual)
    if expected is None and not unverified:
        raise Unverified(
            f"{uri} was not read: it is a pickle, which can run code here, and the log of {chain.name} has no digest "
            "of it: the lines have expired, the job's role may not write a log, or an earlier raysm ran the job",
            remedy="if only people whom you trust may write there, read it all the same: raysm result "
            f"{chain.name} --unverified (in Python: result(unverified=True))",
        )
    if expected not in (None, actual):
        raise Unverified(
            f"{uri} was not read: it is not what {chain.name} has written, whose digest is in the job's log; find out "
            "who may write to the bucket, and run the job again"
        )
    return content


def _is_in_home(uri: str, service: Service) -> bool:
    return not uri.startswith("s3://") and file_path(uri).resolve().is_relative_to(
        service.home.resolve()
    )


def _read_own(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            # A user who may write a folder above the home can put another folder in its place.
            if not is_trusted_owner(os.fstat(file.fileno())):
                raise Unverified(
                    f"{path} was not read: it belongs to another user, and as a pickle it can run code here",
                    remedy="set RAYSM_HOME to a folder below which no other user may write, and run the job again",
                )
            return file.read()
    except FileNotFoundError:
        return None


def _digest_in_log(chain: Chain, name: str, actual: str) -> str | None:
    """Return the last digest of a file in the log of the last job; wait for ``actual`` while lines may arrive."""
    deadline_s = time.monotonic() + chain.late_s()
    while True:
        found = _last_digest(chain, name)
        if found == actual or time.monotonic() >= deadline_s:
            return found
        time.sleep(LOOK_S)


def _last_digest(chain: Chain, name: str) -> str | None:
    service, group = chain.service, chain.api.log_group
    try:
        pages = service.pages(
            "logs",
            "describe_log_streams",
            token="nextToken",
            logGroupName=group,
            logStreamNamePrefix=f"{chain.name}/",
        )
        streams = [
            stream["logStreamName"] for page in pages for stream in page.get("logStreams", ())
        ]
        # Only the head writes digests, but the service does not say which instance that is.
        of_instances = [
            one for one in streams if STREAM.fullmatch(one.removeprefix(f"{chain.name}/"))
        ]
        found = in_parallel(
            lambda stream: _digest_in_stream(service, group, stream, name), of_instances
        )
    except ServiceError as error:
        if error.code == "ResourceNotFoundException":  # the log has expired, or there never was one
            return None
        raise
    # By the log's times: those in an event may be someone else's.
    _, latest = max(filter(None, found), default=(0, None))
    return latest


def _digest_in_stream(
    service: Service, group: str, stream: str, name: str
) -> tuple[int, str] | None:
    """Return the last digest of a file in a stream, after its time in milliseconds."""
    for event in _backwards(service, group, stream):
        message = event["message"]
        # A task may print data that others have written, and Ray may pass its lines on after the
        # driver's digest.
        is_of_task = OF_TASK.search(message.partition(MARK)[0]) is not None
        match parse(message):
            case Digest() as digest if digest.file == name and not is_of_task:
                return event["timestamp"], digest.sha256
    return None


def _backwards(service: Service, group: str, stream: str) -> Iterator[Mapping[str, Any]]:
    query = {"logGroupName": group, "logStreamName": stream}
    for _ in range(MAX_PAGES):
        page = service.call("logs", "get_log_events", startFromHead=False, **query)
        yield from reversed(page.get("events", ()))
        following = page.get("nextBackwardToken")
        if following is None or following == query.get("nextToken"):
            return
        query["nextToken"] = following

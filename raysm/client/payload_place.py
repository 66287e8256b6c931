"""Where the payload of a job lies, and its removal once nobody needs it any more: it holds source and token.

What flows in is a call of Create, or what Describe answers; what flows out is a URI, or an empty prefix.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from raysm.client.service import Service
from raysm.client.storage import Storage
from raysm.errors import ServiceError
from raysm.request.job import JOB_CHANNEL, PAYLOAD_CHANNEL

__all__ = ["payload_uri", "remove_payload"]

OWN = re.compile(r"s3://[^/]+/raysm/payloads/[^/]+/([^/]+)/")
"""How ``Places.payload`` makes them; the last part is the job. Of what others call so, nothing is removed."""

_log = logging.getLogger("raysm")


def payload_uri(call: Mapping[str, Any]) -> str | None:
    """Return where the payload lies by a call of Create, or by an answer of Describe: the job's own part of it."""
    uris = {
        channel["ChannelName"]: channel["DataSource"].get("S3DataSource", {}).get("S3Uri")
        for channel in call.get("InputDataConfig", ())
    }
    uris |= {item["InputName"]: item.get("S3Input", {}).get("S3Uri") for item in call.get("ProcessingInputs", ())}
    # The shared part tells nothing of this job, and outlives it.
    uri = uris.get(JOB_CHANNEL) or uris.get(PAYLOAD_CHANNEL)
    return None if uri is None else str(uri)


def remove_payload(answer: Mapping[str, Any], first: str, service: Service) -> None:
    """Remove the payload of a chain that is over.

    Args:
        answer: What Describe says of the last job.
        first: The first job's name: the follow-ups travel with its payload.
        service: Where it lies.
    """
    uri = payload_uri(answer) or ""
    match = OWN.fullmatch(uri)
    if match is None or match[1] != first:
        return
    try:
        Storage(service).remove(uri)
    except ServiceError as error:
        # Who only looks at a job may lack the right; who sent it, or the bucket's lifecycle rule, removes it.
        _log.info("the payload of %s cannot be removed from here: %s", first, error)

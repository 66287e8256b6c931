"""A job's payload in S3: upload, URI and deletion.

The payload contains source code and the job's token, so it is deleted once the job, or its last follow-up, has ended.
"""

import json
import logging
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysm.client.service import Service
from raysm.client.storage.inputs import send_folder
from raysm.client.storage.places import shared_mark
from raysm.client.storage.s3 import Storage
from raysm.contract.payload import Contents, Parted
from raysm.errors import ServiceError
from raysm.request.job import JOB_CHANNEL, PAYLOAD_CHANNEL

__all__ = ["payload_uri", "remove_payload", "upload_payload"]

_log = logging.getLogger("raysm")


def upload_payload(
    contents: Contents, place: str, shared: str | None, storage: Storage, kms_key: str | None = None
) -> None:
    """Upload the payload of one job.

    Args:
        contents: All of it.
        place: The job's own prefix.
        shared: Prefix of what it shares with other jobs, which is sent where it is not there; None shares nothing.
        storage: Where to.
        kms_key: Encrypts it.

    Raises:
        InvalidRequest: A file of the user's has changed since the digests were taken.
        ServiceError: It cannot be sent.
    """
    if shared is None:
        with tempfile.TemporaryDirectory(prefix="raysm-payload-") as folder:
            packed = Path(folder) / "payload"
            contents.write(packed)
            send_folder(packed, place, storage, kms_key)
        return
    parted = Parted(contents)
    _send_shared(parted, shared, storage, kms_key)
    for name, content in parted.own().items():
        storage.write(f"{place}/{name}", content, kms_key)


def _send_shared(parted: Parted, shared: str, storage: Storage, kms_key: str | None) -> None:
    # Asked for each job: a lifecycle rule, or who removes old jobs, may have removed it since the last one.
    whole = shared_mark(shared)
    if storage.size(whole) is not None:
        return
    with tempfile.TemporaryDirectory(prefix="raysm-payload-") as folder:
        packed = Path(folder) / "payload"
        parted.write_shared(packed)
        send_folder(packed, shared, storage, kms_key)
    # Last: two that send it at once send the same, and who finds this finds all.
    storage.write(whole, json.dumps({"digest": parted.digest}).encode(), kms_key)


OWN = re.compile(r"s3://[^/]+/raysm/payloads/[^/]+/([^/]+)/")
"""How ``Places.payload`` makes them; the last part is the job. Of what others call so, nothing is removed."""


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
        # A reader of the job may lack the permission; its sender or the bucket's lifecycle rule removes it.
        _log.info("the payload of %s cannot be removed from here: %s", first, error)

"""A job's payload in S3: upload, URI and deletion.

The payload contains source code and the job's token, so it is deleted once the job, or its last
follow-up, has ended.
"""

import json
import logging
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from raysm.core.client.service import Service
from raysm.core.client.storage.places import shared_mark
from raysm.core.client.storage.s3 import Storage, in_parallel
from raysm.core.protocol.payload import Contents
from raysm.core.request.job import JOB_CHANNEL, PAYLOAD_CHANNEL
from raysm.errors import ServiceError

OWN = re.compile(r"s3://[^/]+/raysm/payloads/[^/]+/([^/]+)/")
"""The form of ``Places.payload``, with the job's name: other prefixes are never deleted."""

_log = logging.getLogger("raysm")


def upload_payload(
    contents: Contents, place: str, shared: str | None, storage: Storage, kms_key: str | None = None
) -> None:
    """Upload a payload to the job's prefix ``place``.

    What it shares with other jobs goes to ``shared``, if it is missing there.
    """
    if shared is None:
        _upload(contents.write, place, storage, kms_key)
        return
    mark = shared_mark(shared)
    # Checked for each job: a lifecycle rule, or another user, may have deleted it since the last
    # one.
    if storage.size(mark) is None:
        _upload(contents.write_shared, shared, storage, kms_key)
        # Written last: if it exists, everything else does. Two uploads at once write the same.
        storage.write(mark, json.dumps({"digest": contents.shared_digest}).encode(), kms_key)
    for name, content in contents.own_part().items():
        storage.write(f"{place}/{name}", content, kms_key)


def _upload(
    pack: Callable[[Path], object], prefix: str, storage: Storage, kms_key: str | None
) -> None:
    with tempfile.TemporaryDirectory(prefix="raysm-payload-") as scratch:
        folder = Path(scratch) / "payload"
        pack(folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        in_parallel(
            lambda path: storage.upload(
                path, f"{prefix}/{path.relative_to(folder).as_posix()}", kms_key
            ),
            paths,
        )


def payload_uri(call: Mapping[str, Any]) -> str | None:
    uris = {
        channel["ChannelName"]: channel["DataSource"].get("S3DataSource", {}).get("S3Uri")
        for channel in call.get("InputDataConfig", ())
    }
    uris |= {
        item["InputName"]: item.get("S3Input", {}).get("S3Uri")
        for item in call.get("ProcessingInputs", ())
    }
    uri = uris.get(JOB_CHANNEL) or uris.get(PAYLOAD_CHANNEL)
    return None if uri is None else str(uri)


def remove_payload(answer: Mapping[str, Any], first: str, service: Service) -> None:
    uri = payload_uri(answer) or ""
    match = OWN.fullmatch(uri)
    if match is None or match[1] != first:
        return
    try:
        Storage(service).remove(uri)
    except ServiceError as error:
        # A reader of the job may lack the permission; its sender, or a lifecycle rule of the
        # bucket, deletes it.
        _log.info("the payload of %s cannot be removed from here: %s", first, error)

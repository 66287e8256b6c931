"""Brings a payload to S3: its contents flow in, objects below one prefix, or two, flow out."""

import json
import tempfile
from pathlib import Path

from raysm.client.places import shared_mark
from raysm.client.storage import Storage
from raysm.client.uploads import send_folder
from raysm.contract.payload import Contents, Parted

__all__ = ["send"]


def send(contents: Contents, place: str, shared: str | None, storage: Storage, kms_key: str | None = None) -> None:
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

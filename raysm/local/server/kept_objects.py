"""What lies in S3 outlives the server that ends as it should, idle or told to: the model of yesterday is there today.

moto holds S3 in memory and spools; at the end each bucket is written into a file, at the start they are read. A server
that is killed leaves those of the end before. raysm's own bucket is kept without its content: payloads of jobs that
have ended, and what can be uploaded again.
"""

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import moto

from raysm.contract.store import replacing
from raysm.local.server.moto_services import ACCOUNT

__all__ = ["restore", "save"]

OWN = "raysm-local"
"""The bucket of raysm's payloads."""
PARTITION = "aws"


def _backends() -> Any:
    from moto.s3.models import s3_backends

    return s3_backends


def _folder(home: Path) -> Path:
    # Written by one version of moto, read by the same: what its classes are is nobody's promise.
    return home / "s3" / str(moto.__version__)


@contextlib.contextmanager
def _without_content(bucket: Any) -> Iterator[None]:
    keys = bucket.keys
    bucket.keys = type(keys)()
    try:
        yield
    finally:
        bucket.keys = keys


def save(home: Path) -> None:
    """Write every bucket; nobody may use S3 meanwhile."""
    buckets = _backends()[ACCOUNT][PARTITION].buckets
    folder = _folder(home)
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in buckets:
                path.unlink()
    for name, bucket in buckets.items():
        with _without_content(bucket) if name == OWN else contextlib.nullcontext(), replacing(folder / name) as beside:
            with beside.open("wb") as file:
                pickle.dump(bucket, file, protocol=5)


def restore(home: Path) -> None:
    """Read what the server before this one wrote; a file that cannot be read is a bucket that is not there."""
    if not _folder(home).is_dir():
        return
    backends = _backends()
    for path in sorted(_folder(home).iterdir()):
        with contextlib.suppress(Exception), path.open("rb") as file:
            backends[ACCOUNT][PARTITION].buckets[path.name] = pickle.load(file)  # a file of our own home
            backends.bucket_accounts[path.name] = (PARTITION, ACCOUNT)

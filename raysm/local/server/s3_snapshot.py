"""Keep moto's S3, which is in memory, over restarts of the server.

A server writes each bucket to a file when it ends, and reads the files when it starts. A server
that is killed leaves the files of the previous end. Of raysm's own bucket, only the payloads that a
follow-up job needs are kept.
"""

import contextlib
import logging
import pickle
import time
from collections.abc import Iterable
from pathlib import Path

from raysm.core.protocol.names import LOCAL_BUCKET, MAX_RESTARTS_TAG, RESTART_TAG
from raysm.core.protocol.store import replacing
from raysm.local.server.moto_services import VERSION, add_bucket, buckets
from raysm.local.server.records import JobRecord

UNREADABLE = "unreadable"
LOG = logging.getLogger(__name__)


def _folder(home: Path) -> Path:
    # By version: moto's classes may change.
    return home / "s3" / VERSION


def _restarts_left(record: JobRecord) -> int:
    # A user may write anything into tags.
    with contextlib.suppress(ValueError):
        return int(record.tags.get(MAX_RESTARTS_TAG, "0")) - int(record.tags.get(RESTART_TAG, "0"))
    return 0


def _prefixes_to_keep(records: Iterable[JobRecord]) -> tuple[str, ...]:
    prefixes: set[str] = set()
    for record in records:
        if record.secondary == "MaxRuntimeExceeded" and _restarts_left(record) > 0:
            for channel in record.request.get("InputDataConfig") or []:
                uri = str((channel["DataSource"].get("S3DataSource") or {}).get("S3Uri"))
                bucket, _, key = uri.removeprefix("s3://").partition("/")
                if _is_own(bucket):
                    prefixes.add(key)
    return tuple(prefixes)


def _is_own(bucket: str) -> bool:
    return bucket == LOCAL_BUCKET or bucket.startswith(f"{LOCAL_BUCKET}-")


def save(home: Path, records: Iterable[JobRecord]) -> None:
    """Write every bucket of the server of ``home``, which ends: objects that are not kept are removed."""
    prefixes = _prefixes_to_keep(records)
    present = buckets()
    folder = _folder(home)
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in present:
                # The bucket was deleted.
                path.unlink()
    for name, bucket in present.items():
        if _is_own(name):
            for key in [key for key in bucket.keys if not key.startswith(prefixes)]:
                bucket.keys.pop(key)
        with (
            replacing(folder / name, mode=0o600, within=folder.parent) as beside,
            beside.open("wb") as file,
        ):
            pickle.dump(bucket, file, protocol=5)


def restore(home: Path) -> None:
    """Read the buckets of the previous server; a file that cannot be read is logged and moved away."""
    folder = _folder(home)
    for other in folder.parent.iterdir() if folder.parent.is_dir() else ():
        if other.name not in (folder.name, UNREADABLE) and other.is_dir() and any(other.iterdir()):
            LOG.warning(
                "%s holds buckets that moto %s wrote, which moto %s does not read",
                other,
                other.name,
                folder.name,
            )
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            with path.open("rb") as file:
                bucket = pickle.load(file)  # a file of this home
        except Exception as error:  # unpickling runs the code of moto's classes
            unreadable = folder.with_name(UNREADABLE)
            unreadable.mkdir(exist_ok=True)
            aside = path.rename(unreadable / f"{path.name}-{time.time_ns()}")
            LOG.warning(
                "the bucket %s could not be read (%r); its file is %s now", path.name, error, aside
            )
            continue
        add_bucket(path.name, bucket)

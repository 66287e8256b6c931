"""Warm pools: the instances of a job are kept for the next job that matches it.

A job with KeepAlivePeriodInSeconds leaves its instances in a pool. The next job that matches gets their cache folder
and starts at once. Source: the developer guide, "SageMaker AI Managed Warm Pools".
"""

import contextlib
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.local.local_job import LocalJob
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError

RESOURCES = (
    "InstanceCount",
    "InstanceType",
    "InstancePreferences",
    "InstanceGroups",
    "VolumeKmsKeyId",
    "VolumeSizeInGB",
)
OTHERS = ("RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption", "EnableNetworkIsolation")
"""Fields of a request that must be equal for a job to get the instances of another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool:
    """The instances of a job that has ended."""

    record: JobRecord
    """The job when it ended."""
    folder: Path
    """The folder with the kept cache folders, one for each host."""
    since_s: float
    """When the pool was made, in seconds since the epoch."""
    end: threading.Timer
    """Ends the pool."""


def keep_alive_s(request: Mapping[str, Any]) -> int:
    """Return KeepAlivePeriodInSeconds."""
    return int((request.get("ResourceConfig") or {}).get("KeepAlivePeriodInSeconds") or 0)


def terminated(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the new status of a pool after its server has ended."""
    return status if status["Status"] == "Reused" else {**status, "Status": "Terminated"}


class WarmPools:
    """All warm pools of a server; every method may be called from any thread."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._pools: dict[str, _Pool] = {}
        self._lock = threading.Lock()

    def folder(self, record: JobRecord) -> Path:
        """Return the folder of a job's kept caches."""
        return self._records.folder(record.api, record.name, record.region) / "warm"

    def gather(self, record: JobRecord, job: LocalJob) -> None:
        """Keep the caches of a job's ended instances, if its request has a keep-alive period."""
        if not keep_alive_s(record.request):
            return
        self.folder(record).mkdir(exist_ok=True)
        for host in job.instances:
            cache = job.paths(host).warm_pool_cache
            # Missing if only a later update asked to keep the instances.
            if cache.is_dir():
                shutil.move(cache, self.folder(record) / host)
        self._keep(record)

    def _keep(self, record: JobRecord) -> None:
        period_s = keep_alive_s(record.request)
        end = threading.Timer(period_s, self._end, [record.arn])
        end.daemon = True
        pool = _Pool(record=record, folder=self.folder(record), since_s=time.time(), end=end)
        with self._lock:
            self._pools[record.arn] = pool
            self._set_status(pool, "Available")
            end.start()

    def take(self, record: JobRecord) -> bool:
        """Give a new job the instances of a pool that matches it; return whether there is one."""
        with self._lock:
            pool = next((pool for pool in self._pools.values() if _key(pool.record) == _key(record)), None)
            if pool is None:
                return False
            pool.end.cancel()
            del self._pools[pool.record.arn]
            if pool.folder.is_dir():
                shutil.move(pool.folder, self.folder(record))
            self._set_status(pool, "Reused", ReusedByJob=record.arn)
            if keep_alive_s(record.request):
                self._records.update(record.api, record.name, record.region, warm_pool={"Status": "InUse"})
            return True

    def update(self, record: JobRecord) -> None:
        """Apply a changed keep-alive period of a job's pool; 0 ends it."""
        with self._lock:
            pool = self._pools.pop(record.arn, None)
        if pool is None:
            return
        pool.end.cancel()
        if keep_alive_s(record.request):
            self._keep(record)
        else:
            self._terminate(pool)

    def close(self) -> None:
        """End all pools."""
        for arn in list(self._pools):
            self._end(arn)

    def _end(self, arn: str) -> None:
        with self._lock:
            pool = self._pools.pop(arn, None)
        if pool is not None:
            pool.end.cancel()
            self._terminate(pool)

    def _terminate(self, pool: _Pool) -> None:
        shutil.rmtree(pool.folder, ignore_errors=True)
        self._set_status(pool, "Terminated")

    def _set_status(self, pool: _Pool, status: str, **more: str) -> None:
        seconds = round(time.time() - pool.since_s)
        status_document = {"Status": status, "ResourceRetainedBillableTimeInSeconds": seconds, **more}
        # The pool's job may have been deleted meanwhile.
        with contextlib.suppress(ApiError):
            self._records.update(pool.record.api, pool.record.name, pool.record.region, warm_pool=status_document)


def _key(record: JobRecord) -> tuple[Any, ...]:
    resources = record.request.get("ResourceConfig") or {}
    # Without the image: instances of a pool can run another image.
    return (
        record.api,
        record.region,
        record.instance_kind,
        *(repr(resources.get(name)) for name in RESOURCES),
        *(repr(record.request.get(name)) for name in OTHERS),
    )

"""Cut the objects below prefixes into shards: rows of a grid, each with a manifest.

A shard holds neighbors in the order of their keys, so that the rows' results are in the order of
the input. Manifests are named by their content: for the same objects, a grid that is run again
finds its rows unchanged.
"""

import bisect
import hashlib
import heapq
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass

from raysm.core.client.service import Service, connect
from raysm.core.client.storage.s3 import Storage, Stored, file_path, in_parallel, split
from raysm.core.protocol.file_uri import uri_of
from raysm.core.protocol.job_api import InputManifest
from raysm.core.request import Target
from raysm.errors import InvalidRequest
from raysm.features.grid.row import Value


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listed:
    prefix: str
    """The beginning of the URIs of all its objects."""
    region: str | None
    """The bucket's region; None for a folder of this machine."""
    objects: Sequence[Stored]


def shards(
    uris: str | Sequence[str],
    count: int,
    *,
    channel: str = "data",
    kms_key: str | None = None,
    on: "Target | Service | None" = None,
) -> list[dict[str, Value]]:
    """Cut the objects below a prefix, or several, into about equal shards: rows of a grid.

    Each row has its ``key``, the ``region`` of its bucket, the manifest of its objects as
    ``manifest_CHANNEL``, and their size as ``input_gb``. The manifests are written below
    ``raysm/inputs/`` in raysm's bucket of the region, named by their content.

    Args:
        uris: ``s3://bucket/prefix``, one or several, which may lie in several regions; on this
            machine also folders. No shard has objects of two of them.
        count: Number of all shards; each has at least one object.
        channel: The channel of the rows' jobs.
        kms_key: ID or ARN of the key that encrypts the manifests; None uses the bucket's.
        on: As for ``raysm.Grid``.

    Raises:
        InvalidRequest: There are fewer objects than shards, or fewer shards than prefixes; nothing
            was written.
        ServiceError: A prefix cannot be listed, or the manifests cannot be written.
    """
    places = [uris] if isinstance(uris, str) else list(uris)
    if type(count) is not int or not 0 < len(places) <= count:
        raise InvalidRequest(
            "shards: count is a whole number, "
            f"at least one for each of {len(places)} prefixes, got {count!r}"
        )
    service = connect(on)
    listed = [_list(uri, service) for uri in places]
    objects = sum(len(each.objects) for each in listed)
    if objects < count:
        raise InvalidRequest(
            f"shards: {count:,} shards, and {objects:,} objects below {', '.join(places)}; "
            f"ask for {objects:,} at most"
        )
    rows: list[dict[str, Value]] = []
    for each, number in zip(listed, _numbers(listed, count), strict=True):
        parts = _cut(each.objects, number)
        addresses = _write(each, parts, service, kms_key)
        for part, address in zip(parts, addresses, strict=True):
            row: dict[str, Value] = {"key": f"shard-{len(rows):0{len(str(count - 1))}}-of-{count}"}
            if each.region is not None:
                row["region"] = each.region
            row[f"manifest_{channel}"] = address
            # The column takes only sizes above 0.
            row["input_gb"] = max(1, sum(stored.size for stored in part)) / 1e9
            rows.append(row)
    return rows


def _list(uri: str, service: Service) -> _Listed:
    storage = Storage(service)
    if uri.startswith("s3://"):
        bucket, key = split(uri)
        region = storage.bucket_region(bucket)
        if region is None:
            raise InvalidRequest(f"shards: there is no bucket {bucket!r}, of {uri}; check its name")
        prefix = f"s3://{bucket}/{key[: key.rfind('/') + 1]}"
        objects = list(storage.walk(uri))
    else:
        path = file_path(uri).absolute()
        if not service.target.takes_files or not path.is_dir():
            where = ", or on this machine a folder" if service.target.takes_files else ""
            raise InvalidRequest(f"shards: {uri!r} cannot be cut; give s3://bucket/prefix{where}")
        region = None
        prefix = uri_of(path) + "/"
        objects = sorted(storage.walk(str(path)), key=lambda stored: os.fsencode(stored.name))
    if not objects:
        raise InvalidRequest(f"shards: nothing lies below {uri}; check the prefix")
    return _Listed(prefix=prefix, region=region, objects=objects)


def _weight(stored: Stored) -> int:
    # An empty object is read, too.
    return max(1, stored.size)


def _numbers(listed: Sequence[_Listed], count: int) -> list[int]:
    """Return each prefix's number of shards such that the largest shard is as small as possible."""
    numbers = [1] * len(listed)
    weights = [sum(map(_weight, each.objects)) for each in listed]
    heaviest = [
        (-float(weight), place)
        for place, weight in enumerate(weights)
        if len(listed[place].objects) > 1
    ]
    heapq.heapify(heaviest)
    for _ in range(count - len(listed)):
        _, place = heapq.heappop(heaviest)
        numbers[place] += 1
        if numbers[place] < len(listed[place].objects):
            heapq.heappush(heaviest, (-weights[place] / numbers[place], place))
    return numbers


def _cut(objects: Sequence[Stored], number: int) -> list[Sequence[Stored]]:
    """Split objects into ``number`` non-empty runs of neighbors of about equal weight."""
    until = list(itertools.accumulate(map(_weight, objects)))
    ends = [0]
    for part in range(1, number + 1):
        nearest = bisect.bisect_left(until, until[-1] * part / number) + 1
        # At least one object for this shard, and for each that follows.
        ends.append(min(max(nearest, ends[-1] + 1), len(objects) - (number - part)))
    return [objects[begin:end] for begin, end in itertools.pairwise(ends)]


def _write(
    listed: _Listed, parts: Sequence[Sequence[Stored]], service: Service, kms_key: str | None
) -> list[str]:
    """Write the manifests of shards; return their URIs, in the same order."""
    # Manifests must be in the region of the jobs, which take no input from another region.
    region = listed.region or service.region
    target = service.target.reaching((region,)).in_region(region)
    in_region = service if region == service.region else service.at(target)
    storage = Storage(in_region)
    root = f"{in_region.places.inputs()}/manifests"
    storage.ensure_bucket(in_region.bucket, in_region.region)

    def write(part: Sequence[Stored]) -> str:
        content = InputManifest(
            prefix=listed.prefix, names=[stored.name for stored in part]
        ).content()
        uri = f"{root}/{hashlib.sha256(content).hexdigest()[:40]}.manifest"
        storage.write(uri, content, kms_key)
        return uri

    return in_parallel(write, parts)

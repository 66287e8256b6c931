"""Refuses inputs that cannot fit onto the instances' volumes: AWS says so only after it has downloaded what did fit.

Pure: what flows in is a request and the bytes of its channels, what flows out is nothing, or the size that would do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from raysm.contract.instance_types import has_local_storage, local_storage_gb
from raysm.contract.job_api import api_of
from raysm.errors import InvalidRequest, option
from raysm.request import Input, InstanceGroup, JobRequest

__all__ = ["check_volume"]

GIB = 2**30
"""A volume's GB are these."""

HEADROOM = 1.25
"""Of what the inputs take, so much is proposed: results, checkpoints and scratch lie on the volume too."""


def check_volume(request: JobRequest, sizes: Mapping[str, int]) -> None:
    """Refuse what cannot fit.

    Args:
        request: What is asked for, on a target whose instances have volumes.
        sizes: Bytes of each channel, as far as they are known.

    Raises:
        InvalidRequest: The size of the inputs and of the volume, and what to do.
    """
    # Of a choice, each: whichever the service takes, the inputs have to fit.
    others = [replace(group, instance_type=name) for group in _groups(request) for name in request.cluster.alternatives]
    for group in (*_groups(request), *others):
        room_gb = _room_gb(group.instance_type, request.cluster.volume_gb)
        needed = _bytes_on_each(request, group, sizes)
        if room_gb is not None and needed > room_gb * GIB:
            fit_gb = int(needed * HEADROOM / GIB) + 1
            larger = (
                "take a larger type"
                if has_local_storage(group.instance_type)
                else f"give a larger one, {option('volume_gb', str(fit_gb))}"
            )
            # A Processing job, which has no checkpoints either, gets its inputs as files in any case.
            stream = ", or stream them: mode='FastFile'" if api_of(request.kind).has_checkpoints else ""
            raise InvalidRequest(
                f"the inputs take {needed / GIB:,.1f} GB of each {group.instance_type}, whose volume has {room_gb} GB; "
                f"{larger}{stream}"
            )


def _groups(request: JobRequest) -> tuple[InstanceGroup, ...]:
    cluster = request.cluster
    return cluster.groups or (InstanceGroup("all", cluster.instance_type, cluster.count),)


def _room_gb(instance_type: str, volume_gb: int) -> int | None:
    """Return the room that an instance has; None where its disks are its own, and their size is not known here."""
    return local_storage_gb(instance_type) if has_local_storage(instance_type) else volume_gb


def _bytes_on_each(request: JobRequest, group: InstanceGroup, sizes: Mapping[str, int]) -> float:
    """Return the bytes that each instance of ``group`` downloads."""
    return sum(
        # About, of shares: they are cut by objects. So what is refused cannot fit, and what passes may not fit either.
        sizes.get(name, 0) / (_sharing(request, source) if source.distribution == "ShardedByS3Key" else 1)
        for name, source in _downloaded(request.inputs)
        if not source.groups or group.name in source.groups
    )


def _downloaded(inputs: Mapping[str, Input]) -> Iterator[tuple[str, Input]]:
    # What is streamed takes no room on the volume.
    yield from ((name, source) for name, source in inputs.items() if source.mode == "File")


def _sharing(request: JobRequest, source: Input) -> int:
    """Return how many instances share a channel."""
    return sum(group.count for group in _groups(request) if not source.groups or group.name in source.groups)

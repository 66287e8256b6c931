"""Files of a channel as blocks of share-nothing work."""

from dataclasses import dataclass
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysm.bootstrap import environment
from raysm.contract import payload
from raysm.contract.names import LABEL_HOST
from raysm.errors import InvalidRequest
from raysm.workloads.placed import PlacedBlock

__all__ = ["FileBlock", "file_blocks"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileBlock(PlacedBlock):
    """One file of a channel."""

    channel: str
    """Name of the channel."""
    name: str
    """Path inside the channel's folder."""
    size_bytes: int
    """Size of the file."""
    host: str | None = None
    """The one instance that has it; None where all have."""

    @property
    def path(self) -> Path:
        """The file on the instance that asks; a block's function calls this where it runs."""
        return environment.read().paths.channel(self.channel) / self.name

    def __str__(self) -> str:
        """Return the block's name in messages and records."""
        return f"file {self.channel}/{self.name}" + (f" on {self.host}" if self.host else "")


def file_blocks(channel: str) -> list[FileBlock]:
    """List a channel's files, one block each, sorted by name.

    Of a FullyReplicated channel any instance may take any file. Of a ShardedByS3Key channel a file is worked on by the
    instance that has it; each instance is asked for its list.

    Raises:
        InvalidRequest: The job has no such channel, or files lie on a head that only coordinates.
    """
    here = environment.read()
    inputs = payload.read_request(here.payload).inputs
    if channel not in inputs:
        raise InvalidRequest(f"the job has no channel {channel!r}; it has {', '.join(sorted(inputs)) or 'none'}")
    if inputs[channel].distribution == "FullyReplicated":
        return list_files(here.paths.channel(channel), channel, None)
    blocks: list[FileBlock] = []
    lister = ray.remote(num_cpus=0, max_retries=3)(_list_here)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    pinned = [
        lister.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(channel)
        for node in nodes
    ]
    for node, listed in zip(nodes, ray.get(pinned), strict=True):
        if listed and not node["Resources"].get("CPU"):
            raise InvalidRequest(
                f"{len(listed)} files of the channel {channel!r} lie on {node['Labels'].get(LABEL_HOST)}, which only "
                "coordinates; let the head compute, or make the channel FullyReplicated"
            )
        blocks.extend(listed)
    return sorted(blocks, key=lambda block: (block.name, block.host or ""))


def _list_here(channel: str) -> list[FileBlock]:
    here = environment.read()
    return list_files(here.paths.channel(channel), channel, here.current_host)


def list_files(folder: Path, channel: str, host: str | None) -> list[FileBlock]:
    """List the files below ``folder``; an instance may have no share at all."""
    return [
        FileBlock(channel=channel, name=file.relative_to(folder).as_posix(), size_bytes=file.stat().st_size, host=host)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]

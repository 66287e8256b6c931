"""Files of a channel as blocks of share-nothing work."""

from dataclasses import dataclass
from pathlib import Path

import ray

from raysm.bootstrap import environment
from raysm.contract import payload
from raysm.errors import InvalidRequest
from raysm.workloads.file_names import input_files
from raysm.workloads.nodes import PlacedBlock, ask_every_node

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
    instance = environment.read()
    inputs = payload.read_request(instance.payload).inputs
    if channel not in inputs:
        raise InvalidRequest(f"the job has no channel {channel!r}; it has {', '.join(sorted(inputs)) or 'none'}")
    # All instances have the same files, so this one's list is that of all, and nobody has to be asked.
    if inputs[channel].distribution == "FullyReplicated":
        return list_files(instance.paths.channel(channel), channel, None)
    blocks: list[FileBlock] = []
    # Also a head that only coordinates is asked: files that lie there would silently not be worked on.
    for node, answer in ask_every_node(_list_here, channel, max_retries=3).items():
        listed = ray.get(answer)
        if listed and not node.cpus:
            raise InvalidRequest(
                f"{len(listed)} files of the channel {channel!r} are on {node.host}, which only coordinates; let the "
                "head compute, or make the channel FullyReplicated"
            )
        blocks.extend(listed)
    # By name, not by who answered first: a record of an earlier run knows blocks by their place in this order.
    return sorted(blocks, key=lambda block: (block.name, block.host or ""))


def _list_here(channel: str) -> list[FileBlock]:
    instance = environment.read()
    return list_files(instance.paths.channel(channel), channel, instance.current_host)


def list_files(folder: Path, channel: str, host: str | None) -> list[FileBlock]:
    """List the files of an input below ``folder``; an instance may have no share at all."""
    return [
        FileBlock(channel=channel, name=name, size_bytes=file.stat().st_size, host=host)
        for name, file in input_files(folder)
    ]

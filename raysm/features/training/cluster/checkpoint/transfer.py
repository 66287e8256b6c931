"""Fetch files of a checkpoint from other instances, over the workers' process group.

Every instance has the files of its own workers; those in S3 come back only when a job starts. A job
that starts its workers again may need the files on other instances.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from raysm.core.protocol.store import removed_if_torn
from raysm.errors import InvalidConfig
from raysm.features.training.cluster.checkpoint.manifest import FileRecord, is_intact

CHUNK_BYTES = 16 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileTransfer:
    name: str
    source: str
    targets: tuple[str, ...]


def plan_transfers(
    needs: Mapping[str, Collection[str]], has: Mapping[str, Collection[str]]
) -> list[FileTransfer]:
    """Return which instance sends which file to which others, in the same order on every rank.

    Instances that have the same files take turns in sending them.
    """
    planned = []
    files_from = dict.fromkeys(sorted(has), 0)
    # Sorted, because all ranks make the transfers together, in one order.
    for name in sorted(set().union(*needs.values())):
        targets = tuple(
            host for host in sorted(needs) if name in needs[host] and name not in has.get(host, ())
        )
        if not targets:
            continue
        sources = [host for host in files_from if name in has[host]]
        if not sources:
            raise InvalidConfig(f"the checkpoint's file {name} is on no instance")
        # The instance that has sent least, so that the work is shared.
        source = min(sources, key=lambda host: files_from[host])
        files_from[source] += 1
        planned.append(FileTransfer(name, source, targets))
    return planned


class CheckpointTransfer:
    """Messages between all ranks; every rank must call each method."""

    def __init__(self, rank: int, hosts: Sequence[str], group: "dist.ProcessGroup | None") -> None:
        self._rank = rank
        self._hosts = tuple(hosts)
        self._group = group
        # One rank writes for its instance: two would write the same file at the same time.
        self._leaders = {host: self._hosts.index(host) for host in dict.fromkeys(self._hosts)}

    @property
    def host(self) -> str:
        return self._hosts[self._rank]

    @property
    def is_leader(self) -> bool:
        return self._leaders[self.host] == self._rank

    @property
    def place(self) -> tuple[int, int]:
        """This rank's number among the ranks of its instance, and how many they are."""
        ranks = [rank for rank, host in enumerate(self._hosts) if host == self.host]
        return ranks.index(self._rank), len(ranks)

    def gather(self, value: T) -> list[T]:
        if self._group is None:
            return [value]
        values: list[Any] = [None] * len(self._hosts)
        dist.all_gather_object(values, value, group=self._group)
        return values

    def by_host(self, names: Collection[str]) -> dict[str, set[str]]:
        by_host: dict[str, set[str]] = {host: set() for host in self._hosts}
        # A rank knows of its own files only; the instance has what any of its ranks has seen.
        for host, of_rank in zip(self._hosts, self.gather(set(names)), strict=True):
            by_host[host] |= of_rank
        return by_host

    def to_first(self, value: T) -> list[T] | None:
        if self._group is None:
            return [value]
        values: list[Any] | None = [None] * len(self._hosts) if self._rank == 0 else None
        dist.gather_object(value, values, dst=0, group=self._group)
        return values

    def from_first(self, value: T) -> T:
        if self._group is None:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]  # type: ignore[no-any-return]

    def fetch(
        self,
        folder: Path,
        needed: Collection[str],
        has: Mapping[str, Collection[str]],
        files: Mapping[str, FileRecord],
    ) -> int:
        """Fetch the files that this instance's ranks need into ``folder``.

        Return the bytes that all instances received. ``has`` must be the same on every rank;
        ``files`` are all files of the checkpoint.
        """
        moved = 0
        for transfer in plan_transfers(self.by_host(needed), has):
            record = files[transfer.name]
            self._move(folder / transfer.name, record, transfer)
            moved += record.bytes * len(transfer.targets)
        self.gather(None)  # no rank reads before its instance's leader has written
        return moved

    def _move(self, path: Path, record: FileRecord, transfer: FileTransfer) -> None:
        """Pass a file along the chain of its source and targets: each sends it at most once."""
        chain = [self._leaders[host] for host in (transfer.source, *transfer.targets)]
        if self._rank not in chain:
            return
        at = chain.index(self._rank)
        after = chain[at + 1] if at + 1 < len(chain) else None
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            # Under its own name: the manifest says when it is whole, and the service would copy a
            # temporary file too.
            if at:
                stack.enter_context(removed_if_torn(path))
            file: Any = stack.enter_context(path.open("wb" if at else "rb"))
            for begin in range(0, record.bytes, CHUNK_BYTES):
                # A tensor, since that is what gloo sends; the file fills its memory directly,
                # without a copy.
                chunk = torch.empty(min(CHUNK_BYTES, record.bytes - begin), dtype=torch.uint8)
                if at:
                    dist.recv(chunk, chain[at - 1], group=self._group)
                else:
                    file.readinto(chunk.numpy().data)
                if after is not None:
                    dist.send(chunk, after, group=self._group)
                if at:
                    file.write(chunk.numpy().data)
        if at and not is_intact(path, record):
            raise InvalidConfig(
                f"{path}: its digest is not the manifest's after it came from {transfer.source}"
            )

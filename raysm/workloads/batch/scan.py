"""What a batch inference reads: the columns of all its tables, and the line that tells the user."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from raysm.bootstrap import environment
from raysm.request.batch import BatchInference
from raysm.workloads.batch.columns import FileColumns, InputColumns
from raysm.workloads.batch.formats import named
from raysm.workloads.batch.formats.tables import Table
from raysm.workloads.batch.piece import Piece
from raysm.workloads.blocks import map_blocks
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.progress import EmitEvent, ProgressThrottle

__all__ = ["described", "scan_columns"]

GROUP_FILES = {"parquet": 64}
"""Files that one task scans. Of Parquet it reads footers; files of the other formats are read whole, one by one."""

SMALL_BYTES = 32 << 20
"""A channel that is not larger is scanned by the driver itself, sooner than a task would begin."""

NOUNS = {"images": "image", "text": "text file", "npy": ".npy file", "files": "file"}

Key: TypeAlias = tuple[str | None, str]
"""A file: the one instance that has it, None if all have, and its path inside the channel's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileGroup(PlacedBlock):
    """Files that one task scans."""

    files: tuple[str, ...]
    """Paths inside the channel's folder."""
    host: str | None
    """The one instance that has them; None if all have."""

    def __str__(self) -> str:
        """Return the group's name in messages."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"the columns of {self.files[0]}{more}" + (f" on {self.host}" if self.host else "")


def scan_columns(
    workload: BatchInference, channel: str, kind: str, pieces: Sequence[Piece], emit_event: EmitEvent
) -> InputColumns | None:
    """Return the columns of all files of a channel; None if its format has no columns of its own.

    Args:
        workload: What is asked for.
        channel: Which channel.
        kind: Its format.
        pieces: All of its records.
        emit_event: Where progress goes.

    Raises:
        InvalidInput: A file cannot be read, the files do not fit together, or ``types`` names an unknown column.
    """
    reader = named(kind)
    if not isinstance(reader, Table):
        return None
    # Once each: a Parquet file can be cut into several pieces.
    keys = list(dict.fromkeys((piece.host, file) for piece in pieces for file in piece.span.files))
    folder = environment.read().paths.channel(channel)
    if all(host is None for host, _ in keys) and sum((folder / file).stat().st_size for _, file in keys) <= SMALL_BYTES:
        return reader.unified([reader.scan(folder, file, workload.types) for _, file in keys], workload.types)
    found = _scan_everywhere(workload, channel, kind, keys, emit_event)
    # In the order of the input, not in that in which tasks end: the order of the columns depends on it.
    return reader.unified([found[key] for key in keys], workload.types)


def _scan_everywhere(
    workload: BatchInference, channel: str, kind: str, keys: Sequence[Key], emit_event: EmitEvent
) -> dict[Key, FileColumns]:
    by_host: dict[str | None, list[str]] = {}
    for host, file in keys:
        by_host.setdefault(host, []).append(file)
    size = GROUP_FILES.get(kind, 1)
    groups = [
        FileGroup(files=tuple(files[start : start + size]), host=host)
        for host, files in by_host.items()
        for start in range(0, len(files), size)
    ]
    progress = ProgressThrottle("scan", len(keys), "files", emit_event)
    scan = functools.partial(_scan, channel, kind, workload.types)
    found: dict[Key, FileColumns] = {}
    for group, scanned in map_blocks(scan, groups):
        found |= {(group.host, item.file): item for item in scanned}
        progress.add(len(scanned))
    return found


def described(channel: str, kind: str, pieces: Sequence[Piece], columns: InputColumns | None) -> str:
    """Return what is read, for people: files, records, and columns with their types."""
    files = len({(piece.host, file) for piece in pieces for file in piece.span.files})
    counts = [piece.span.rows for piece in pieces]
    rows = columns.rows if columns is not None else None if None in counts else sum(filter(None, counts))
    text = f"input {channel!r}: {_counted(files, NOUNS.get(kind, f'{kind} file'))}"
    if kind not in ("images", "files") and rows is not None:
        text += f", {_counted(rows, 'line' if kind == 'text' else 'row')}"
    return text if columns is None else f"{text}, {_counted(len(columns.schema), 'column')}: {columns.described()}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def _scan(channel: str, kind: str, types: Mapping[str, str], group: FileGroup) -> list[FileColumns]:
    reader = named(kind)
    assert isinstance(reader, Table), "only tables are scanned"
    folder = environment.read().paths.channel(channel)
    return [reader.scan(folder, file, types) for file in group.files]

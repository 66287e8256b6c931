"""What a batch inference reads: the columns of all its tables, and the line that tells the user."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

NOUNS = {"images": "images", "text": "text files", "npy": ".npy files", "files": "files"}


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
    by_host: dict[str | None, list[str]] = {}
    # Once each: a Parquet file can be cut into several pieces.
    for host, file in dict.fromkeys((piece.host, file) for piece in pieces for file in piece.span.files):
        by_host.setdefault(host, []).append(file)
    size = GROUP_FILES.get(kind, 1)
    groups = [
        FileGroup(files=tuple(files[start : start + size]), host=host)
        for host, files in by_host.items()
        for start in range(0, len(files), size)
    ]
    progress = ProgressThrottle("scan", len(groups), "files" if size == 1 else "groups of files", emit_event)
    scanned: dict[FileGroup, list[FileColumns]] = {}
    scan = functools.partial(_scan, channel, kind, workload.types)
    for group, columns in map_blocks(scan, groups, on_progress=lambda done, _: progress.reach(done)):
        scanned[group] = columns
    # In the order of the input, not in that in which tasks end: the order of the columns depends on it.
    found = {(group.host, item.file): item for group, columns in scanned.items() for item in columns}
    order = dict.fromkeys((piece.host, file) for piece in pieces for file in piece.span.files)
    return reader.unified([found[key] for key in order], workload.types)


def described(channel: str, kind: str, pieces: Sequence[Piece], columns: InputColumns | None) -> str:
    """Return what is read, for people: files, records, and columns with their types."""
    files = len({(piece.host, file) for piece in pieces for file in piece.span.files})
    counts = [piece.span.rows for piece in pieces]
    rows = columns.rows if columns is not None else None if None in counts else sum(filter(None, counts))
    text = f"input {channel!r}: {files:,} {NOUNS.get(kind, f'{kind} files')}"
    if rows is not None and rows != files:
        text += f", {rows:,} {'lines' if kind == 'text' else 'rows'}"
    return text if columns is None else f"{text}, {len(columns.schema):,} columns: {columns.described()}"


def _scan(channel: str, kind: str, types: Mapping[str, str], group: FileGroup) -> list[FileColumns]:
    reader = named(kind)
    assert isinstance(reader, Table), "only tables are scanned"
    folder = environment.read().paths.channel(channel)
    return [reader.scan(folder, file, types) for file in group.files]

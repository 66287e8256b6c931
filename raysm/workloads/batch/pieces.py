"""The pieces of a channel: the records that one process predicts at a time, and the columns of all its tables."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from raysm.bootstrap import environment
from raysm.contract.names import natural
from raysm.errors import InstanceLost, InvalidInput
from raysm.request.batch import BatchInference
from raysm.workloads.batch.columns import FileColumns, InputColumns
from raysm.workloads.batch.formats import Span, format_of, reader_of
from raysm.workloads.batch.tables import Table
from raysm.workloads.blocks import file_blocks, map_blocks
from raysm.workloads.file_names import is_hidden
from raysm.workloads.nodes import PlacedBlock, answers, ask_every_node, cluster_nodes
from raysm.workloads.report import EmitEvent, ProgressThrottle

Spans: TypeAlias = Mapping[str | None, Sequence[Span]]
"""Spans by the only instance that has their records; None if all have them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece(PlacedBlock):
    """Some records, which one process predicts."""

    number: int
    """Its place in the order of the input, from 0."""
    span: Span
    host: str | None = None
    """The only instance that has the records; None if all have them."""

    @property
    def file(self) -> str:
        return f"predictions/part-{self.number:06}.parquet"

    def __str__(self) -> str:
        """Return a name for messages and records that no other piece has."""
        first, *others = self.span.files
        more = f" and {len(others)} more" if others else ""
        rows = "" if self.span.rows is None or others else f", rows {self.span.first_row} to {self._last_row}"
        return f"part {self.number}: {first}{more}{rows}" + (f" on {self.host}" if self.host else "")

    @property
    def _last_row(self) -> int:
        return self.span.first_row + (self.span.rows or 1) - 1


def pieces_of(workload: BatchInference, channel: str) -> tuple[str, list[Piece]]:
    """Cut a channel's records; return the format, and the pieces in the order of the input.

    Raises:
        InvalidInput: There are no files, or they cannot be read.
        InstanceLost: An instance that has a share of them went away meanwhile.
    """
    files = [block for block in file_blocks(channel) if not is_hidden(block.name)]
    if not files:
        raise InvalidInput(f"the channel {channel!r} has no files; give a file, or a folder with files")
    names: dict[str | None, list[str]] = {}
    for block in sorted(files, key=lambda block: natural(block.name)):
        names.setdefault(block.host, []).append(block.name)
    kind = workload.read or format_of([block.name for block in files], channel)
    rows = workload.rows_of_a_piece
    if None in names:
        spans: Spans = {None: _cut(channel, kind, names[None], rows)}
    else:
        spans = _cut_there(channel, kind, names, rows)
    return kind, _numbered([Piece(number=0, span=span, host=host) for host in spans for span in spans[host]])


def _cut_there(channel: str, kind: str, names: Mapping[str | None, Sequence[str]], rows: int) -> Spans:
    """Let each instance cut the files that it alone has."""
    nodes = cluster_nodes()
    references = {}
    for host, files in names.items():
        on_host = [node for node in nodes if node.host == host]
        # Each instance gets only its own names, which may be many. All are asked before the first answer is awaited.
        references[host] = list(ask_every_node(_cut, channel, kind, files, rows, nodes=on_host, max_retries=3).values())
    spans: dict[str | None, Sequence[Span]] = {}
    for host, reference in references.items():
        answered = answers(reference)
        if not answered:
            raise InstanceLost(f"{host} was lost while it listed its records of {channel!r}")
        spans[host] = answered[0]
    return spans


def _cut(channel: str, kind: str, names: Sequence[str], rows: int) -> list[Span]:
    return reader_of(kind).cut(environment.read().paths.channel(channel), names, rows)


def _numbered(pieces: list[Piece]) -> list[Piece]:
    # Sorted by name, because the order of the result must not depend on which instance has a file.
    ordered = sorted(pieces, key=lambda piece: (natural(piece.span.files[0]), piece.span.start, piece.host or ""))
    return [replace(piece, number=number) for number, piece in enumerate(ordered)]


GROUP_FILES = {"parquet": 64}
"""Number of files that one task scans, if not 1: Parquet needs only footers, other formats are read whole."""

SMALL_BYTES = 32 << 20
"""The driver itself scans a channel up to this size, which takes less time than to start a task."""

NOUNS = {"images": "image", "text": "text file", "npy": ".npy file", "files": "file"}

Key: TypeAlias = tuple[str | None, str]
"""A file: the one instance that has it, None if all have, and its path inside the channel's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileGroup(PlacedBlock):
    """Files that one task scans."""

    files: tuple[str, ...]
    host: str | None

    def __str__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"the columns of {self.files[0]}{more}" + (f" on {self.host}" if self.host else "")


def scan_columns(
    workload: BatchInference, channel: str, kind: str, pieces: Sequence[Piece], emit_event: EmitEvent
) -> InputColumns | None:
    """Return the columns of all files of a channel; None if its format has no columns of its own."""
    reader = reader_of(kind)
    if not isinstance(reader, Table):
        return None
    # Each file once, because a Parquet file may be cut into several pieces.
    keys = list(dict.fromkeys((piece.host, file) for piece in pieces for file in piece.span.files))
    folder = environment.read().paths.channel(channel)
    if all(host is None for host, _ in keys) and sum((folder / file).stat().st_size for _, file in keys) <= SMALL_BYTES:
        return reader.unified([reader.scan(folder, file, workload.types) for _, file in keys], workload.types)
    found = _scan_everywhere(workload, channel, kind, keys, emit_event)
    # The order of the columns follows from the order of the input, and not from that in which tasks end.
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


def _scan(channel: str, kind: str, types: Mapping[str, str], group: FileGroup) -> list[FileColumns]:
    reader = reader_of(kind)
    assert isinstance(reader, Table), "only tables are scanned"
    folder = environment.read().paths.channel(channel)
    return [reader.scan(folder, file, types) for file in group.files]


def described(channel: str, kind: str, pieces: Sequence[Piece], columns: InputColumns | None) -> str:
    """Describe the input for people: files, records, and columns with their types."""
    files = len({(piece.host, file) for piece in pieces for file in piece.span.files})
    counts = [piece.span.rows for piece in pieces]
    rows = columns.rows if columns is not None else None if None in counts else sum(filter(None, counts))
    text = f"input {channel!r}: {_counted(files, NOUNS.get(kind, f'{kind} file'))}"
    if kind not in ("images", "files") and rows is not None:
        text += f", {_counted(rows, 'line' if kind == 'text' else 'row')}"
    return text if columns is None else f"{text}, {_counted(len(columns.schema), 'column')}: {columns.described()}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)

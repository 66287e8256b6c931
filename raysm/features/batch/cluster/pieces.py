"""The pieces of a channel, and the columns of all its tables.

A piece is the records that one process predicts at a time.
"""

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raysm.core.protocol.names import counted, natural
from raysm.errors import InvalidInput
from raysm.features.batch.cluster.columns import FileColumns, InputColumns
from raysm.features.batch.cluster.files import WholeFiles
from raysm.features.batch.cluster.formats import Span, group_files, infer_format, make_reader
from raysm.features.batch.cluster.tables import Table
from raysm.features.batch.request import BatchInference
from raysm.instance import environment
from raysm.instance.work.blocks import FileBlock, file_blocks, map_blocks
from raysm.instance.work.file_names import is_hidden
from raysm.instance.work.nodes import PlacedBlock
from raysm.instance.work.report import EmitEvent, ProgressThrottle

SMALL_BYTES = 32 << 20
"""The driver itself looks at so much, in less time than a task needs to start; a task looks at so
much."""

GROUP_FILES = 64
"""Maximum number of files that one task looks at."""

NOUNS = {"images": "image", "text": "text file", "npy": ".npy file", "files": "file"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece(PlacedBlock):
    number: int
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
        last_row = self.span.first_row + (self.span.rows or 1) - 1
        rows = (
            ""
            if self.span.rows is None or others
            else f", rows {self.span.first_row} to {last_row}"
        )
        return f"part {self.number}: {first}{more}{rows}" + (
            f" on {self.host}" if self.host else ""
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FileGroup(PlacedBlock):
    files: tuple[str, ...]
    host: str | None

    def __str__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"the records of {self.files[0]}{more}" + (f" on {self.host}" if self.host else "")


def survey(
    workload: BatchInference, channel: str, emit_event: EmitEvent
) -> tuple[str, list[Piece], InputColumns | None]:
    """Return a channel's format, its pieces, and the columns of all its tables.

    The pieces are in the order of the input.
    """
    blocks = [block for block in file_blocks(channel) if not is_hidden(block.name)]
    if not blocks:
        raise InvalidInput(
            f"the channel {channel!r} has no files; give a file, or a folder with files"
        )
    blocks.sort(key=lambda block: (natural(block.name), block.host or ""))
    kind = workload.read or infer_format([block.name for block in blocks], channel)
    reader = make_reader(kind)
    rows = workload.rows_of_a_piece
    if isinstance(reader, WholeFiles):
        names: dict[str | None, list[str]] = defaultdict(list)
        for block in blocks:
            names[block.host].append(block.name)
        return (
            kind,
            _number((span, host) for host in names for span in group_files(names[host], rows)),
            None,
        )
    scans = _scan_files(
        functools.partial(scan_group, channel, kind, rows, workload.types), blocks, kind, emit_event
    )
    pieces = _number(
        (span, block.host) for block in blocks for span in scans[block.host, block.name][0]
    )
    if not isinstance(reader, Table):
        return kind, pieces, None
    # The order of the columns follows from the order of the input, and not from that in which tasks
    # end.
    scanned = [
        columns for block in blocks if (columns := scans[block.host, block.name][1]) is not None
    ]
    return kind, pieces, reader.unify(scanned, workload.types)


Scanned = tuple[list[Span], FileColumns | None]
"""The spans of a file, and its columns if it is a table."""


def scan_group(
    channel: str, kind: str, rows: int, types: Mapping[str, str], group: FileGroup
) -> list[Scanned]:
    reader = make_reader(kind)
    folder = environment.read().paths.channel(channel)
    return [
        (
            reader.split(folder, [file], rows),
            reader.scan(folder, file, types) if isinstance(reader, Table) else None,
        )
        for file in group.files
    ]


def _scan_files(
    scan: "functools.partial[list[Scanned]]",
    blocks: Sequence[FileBlock],
    kind: str,
    emit_event: EmitEvent,
) -> dict[tuple[str | None, str], Scanned]:
    groups = _groups(blocks, kind)
    if (
        all(block.host is None for block in blocks)
        and sum(block.size_bytes for block in blocks) <= SMALL_BYTES
    ):
        return {
            (None, file): seen
            for group in groups
            for file, seen in zip(group.files, scan(group), strict=True)
        }
    progress = ProgressThrottle("scan", len(blocks), "files", emit_event)
    scans: dict[tuple[str | None, str], Scanned] = {}
    for group, seen in map_blocks(scan, groups):
        scans |= {(group.host, file): each for file, each in zip(group.files, seen, strict=True)}
        progress.add(len(seen))
    return scans


def _groups(blocks: Sequence[FileBlock], kind: str) -> list[FileGroup]:
    groups: list[list[FileBlock]] = []
    room = 0
    for block in sorted(blocks, key=lambda block: block.host or ""):
        if (
            not groups
            or groups[-1][0].host != block.host
            or len(groups[-1]) == GROUP_FILES
            or room < 0
        ):
            groups.append([])
            room = SMALL_BYTES
        groups[-1].append(block)
        # Only the footer of a Parquet file is read.
        room -= 0 if kind == "parquet" else block.size_bytes
    return [
        FileGroup(files=tuple(block.name for block in group), host=group[0].host)
        for group in groups
    ]


def _number(spans: Iterable[tuple[Span, str | None]]) -> list[Piece]:
    pieces = [Piece(number=0, span=span, host=host) for span, host in spans]
    # Sorted by name, because the order of the result must not depend on which instance has a file.
    pieces.sort(
        key=lambda piece: (natural(piece.span.files[0]), piece.span.start, piece.host or "")
    )
    return [replace(piece, number=number) for number, piece in enumerate(pieces)]


def describe(channel: str, kind: str, pieces: Sequence[Piece], columns: InputColumns | None) -> str:
    files = len({(piece.host, file) for piece in pieces for file in piece.span.files})
    counts = [piece.span.rows for piece in pieces]
    rows = None
    if columns is not None:
        rows = columns.rows
    elif None not in counts:
        rows = sum(filter(None, counts))
    text = f"input {channel!r}: {counted(files, NOUNS.get(kind, f'{kind} file'))}"
    if kind not in ("images", "files") and rows is not None:
        text += f", {counted(rows, 'line' if kind == 'text' else 'row')}"
    return (
        text
        if columns is None
        else f"{text}, {counted(len(columns.schema), 'column')}: {columns.describe()}"
    )

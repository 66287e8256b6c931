"""A channel's records, cut into pieces: what one process predicts at a time, and what becomes one part of the result.

What flows in are the files as they lie on the instances, what flows out are pieces, numbered in the order of the input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from raysm.bootstrap import environment
from raysm.contract.names import natural
from raysm.errors import InstanceLost, InvalidInput
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import format_of, named
from raysm.workloads.batch.formats.format import Span
from raysm.workloads.file_names import is_hidden
from raysm.workloads.files import file_blocks
from raysm.workloads.nodes import answers, ask_every_node, cluster_nodes
from raysm.workloads.placed import PlacedBlock

__all__ = ["Piece", "pieces_of"]

Spans: TypeAlias = Mapping[str | None, Sequence[Span]]
"""By the instance that alone has their records; None where all have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece(PlacedBlock):
    """Some records, which one process predicts."""

    number: int
    """Its place in the order of the input, from 0."""
    span: Span
    """Which records."""
    host: str | None = None
    """The one instance that has them; None where all have."""

    @property
    def file(self) -> str:
        """Name of its part of the result."""
        return f"predictions/part-{self.number:06}.parquet"

    def __str__(self) -> str:
        """Return the piece's name in messages and records, by what it holds: none may be taken for another."""
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
        InstanceLost: One that has a share of them went away meanwhile.
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
    """Have each instance cut what it alone has: nobody else could read it."""
    nodes = cluster_nodes()
    references = {}
    for host, files in names.items():
        on_host = [node for node in nodes if node.host == host]
        # Each is told its own names alone, of which there may be many, and none is waited for before all are asked.
        references[host] = list(ask_every_node(_cut, channel, kind, files, rows, nodes=on_host, max_retries=3).values())
    spans: dict[str | None, Sequence[Span]] = {}
    for host, reference in references.items():
        answered = answers(reference)
        if not answered:
            raise InstanceLost(f"{host} was lost while it listed its records of {channel!r}")
        spans[host] = answered[0]
    return spans


def _cut(channel: str, kind: str, names: Sequence[str], rows: int) -> list[Span]:
    return named(kind).cut(environment.read().paths.channel(channel), names, rows)


def _numbered(pieces: list[Piece]) -> list[Piece]:
    # By name, not by who answered first: the order of the result may not depend on who has a file.
    # The first file's alone: of one instance no two spans begin with the same file at the same place.
    ordered = sorted(pieces, key=lambda piece: (natural(piece.span.files[0]), piece.span.start, piece.host or ""))
    return [replace(piece, number=number) for number, piece in enumerate(ordered)]

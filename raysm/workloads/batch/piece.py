"""A channel's records, cut into pieces: what one process predicts at a time, and what becomes one part of the result.

What flows in are the files as they lie on the instances, what flows out are pieces, numbered in the order of the input.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath

from raysm.bootstrap import environment
from raysm.errors import InstanceLost, InvalidInput, InvalidRequest
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import format_of, named
from raysm.workloads.batch.formats.format import Span
from raysm.workloads.files import file_blocks, list_files
from raysm.workloads.nodes import answers, ask_every_node
from raysm.workloads.placed import PlacedBlock

__all__ = ["Piece", "channel_of", "is_hidden", "pieces_of"]


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


def channel_of(workload: BatchInference, inputs: Iterable[str]) -> str:
    """Return the channel whose records are predicted.

    Args:
        workload: What is asked for.
        inputs: Names of the job's.

    Raises:
        InvalidRequest: There is none of that name, or several and none is named.
    """
    names = sorted(inputs)
    if workload.channel is not None and workload.channel not in names:
        raise InvalidRequest(f"Batch: the job has no input {workload.channel!r}; it has {', '.join(names) or 'none'}")
    if workload.channel is None and len(names) != 1:
        remedy = f"say which one is read, channel={names[0]!r}" if names else "give one: inputs={'data': 'folder/'}"
        raise InvalidRequest(f"Batch: the job has {len(names)} inputs; {remedy}")
    return workload.channel or names[0]


def pieces_of(workload: BatchInference, channel: str) -> tuple[str, list[Piece]]:
    """Cut a channel's records; return the format, and the pieces in the order of the input.

    Raises:
        InvalidInput: There are no files, or they cannot be read.
        InstanceLost: One that has a share of them went away meanwhile.
    """
    files = [block for block in file_blocks(channel) if not is_hidden(block.name)]
    if not files:
        raise InvalidInput(f"the channel {channel!r} has no files")
    kind = workload.read or format_of([block.name for block in files], channel)
    rows = workload.rows_of_a_piece
    if all(block.host is None for block in files):
        folder = environment.read().paths.channel(channel)
        spans = named(kind).cut(folder, [block.name for block in files], rows)
        return kind, [Piece(number=number, span=span) for number, span in enumerate(spans)]
    return kind, _numbered(_cut_everywhere(channel, kind, rows))


def is_hidden(name: str) -> bool:
    """Return whether a file is none of the user's data: ``.DS_Store``, ``_SUCCESS``."""
    return any(part.startswith((".", "_")) for part in PurePath(name).parts)


def _cut_everywhere(channel: str, kind: str, rows: int) -> list[Piece]:
    """Have each instance cut what it has: nobody else could read it."""
    pieces: list[Piece] = []
    for node, reference in ask_every_node(_cut_here, channel, kind, rows, max_retries=3).items():
        answered = answers([reference])
        if not answered:
            raise InstanceLost(f"{node.host} went away while it was asked which records of {channel!r} it has")
        pieces += [Piece(number=0, span=span, host=node.host) for span in answered[0]]
    return pieces


def _cut_here(channel: str, kind: str, rows: int) -> list[Span]:
    here = environment.read()
    folder = here.paths.channel(channel)
    names = [block.name for block in list_files(folder, channel, here.current_host) if not is_hidden(block.name)]
    return named(kind).cut(folder, names, rows)


def _numbered(pieces: list[Piece]) -> list[Piece]:
    # By name, not by who answered first: the order of the result may not depend on who has a file.
    ordered = sorted(pieces, key=lambda piece: (piece.span.files, piece.span.start, piece.host or ""))
    return [replace(piece, number=number) for number, piece in enumerate(ordered)]

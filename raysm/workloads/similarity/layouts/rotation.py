"""The rotation of sharded rows: which chunks travel to which instance, in which order. Pure functions.

A share is cut into *chunks* of consecutive rows. Every unordered pair of chunks, and each with itself, is compared
once, on an instance that has at least one of the two. A foreign chunk that comes to an instance is a *transfer*, and is
compared there with all the own chunks that it has to be; so it is sent to each instance at most once.

**Half ring.** Of n instances, the chunks of i + 1, i + 2, … i + (n - 1) // 2 around the circle come to i. For even n,
the instances i and i + n/2 share their work: half of the one's chunks go to the other, which sends all of its own back
to be compared with the other half. With equal shares of N rows each instance sends and receives (n - 1) / 2 * N / n of
them, or of even n about as many. Instances with larger shares have more to do: the files should be of about one size.

**Queries.** If queries look into a matrix, one of the two stays where it is, and the other travels: each of its chunks
comes to every instance that has some of what stays. What every instance has never travels. Where both are sharded, that
one travels which has fewer bytes.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysm.contract.names import natural
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.nodes import PlacedBlock
from raysm.workloads.similarity.arithmetic.tiling import RowRun, shifted
from raysm.workloads.similarity.layouts.shards import Shard
from raysm.workloads.similarity.tasks.parts import TileTask


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Consecutive rows of one instance: what is sent at once, and one side of a task."""

    host: str
    start: int
    """The first, among the instance's own rows."""
    stop: int
    runs: tuple[RowRun, ...]
    """Their numbers in the matrix, rising; offsets count from the chunk's first row."""
    origin: int = 0
    """The place of the instance's own first row."""

    @property
    def range(self) -> RowBlock:
        """The places of its rows."""
        return RowBlock(self.origin + self.start, self.origin + self.stop)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def in_order(self) -> bool:
        """True if the places of its rows are their numbers."""
        return len(self.runs) == 1 and self.runs[0].start == self.range.start

    def numbers(self) -> NDArray[np.int64]:
        """Return the rows' numbers[rows] in the matrix, rising."""
        return np.concatenate([np.arange(run.start, run.start + run.rows) for run in self.runs])

    def numbers_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of some of its rows by their places."""
        return places if self.in_order else self.numbers()[places - self.range.start]

    def __str__(self) -> str:
        """Name it by its rows in the matrix alone: wherever they lie, they are the same."""
        first, last = self.runs[0].start, self.runs[-1].start + self.runs[-1].rows - 1
        if len(self.runs) == 1:
            return f"rows {first} to {last}"
        # Digested: of thousands of small files the runs would be a name as long, in each message and line of the log.
        text = ",".join(f"{run.start}+{run.rows}" for run in self.runs)
        return f"{self.rows} of rows {first} to {last} ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


Brings = Literal["either", "queries", "matrix"]
"""The channel of a chunk that travels; in a self-join both are the same rows."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A chunk, and the chunks of one instance that it is compared with there."""

    host: str
    chunk: RowChunk
    """The chunk that comes; one of the instance's own is at home already."""
    partners: tuple[RowChunk, ...]
    """With what; itself among them where it is compared with itself."""
    brings: Brings = "either"
    """The channel of the chunk that comes."""

    @property
    def at_home(self) -> bool:
        """True if nothing has to be sent."""
        return self.chunk.host == self.host


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockPair(TileTask, PlacedBlock):
    """Two chunks, or one and itself, of which the host has at least one: what one task compares."""

    host: str
    left: RowChunk
    """The rows of the tile: queries; of a self-join, the one of the two that comes first in place."""
    right: RowChunk
    inputs: tuple[Any, ...] = ()
    """The rows of the one that is not the host's, as an object of Ray."""

    @property
    def remote(self) -> RowChunk | None:
        """The one that is not the host's."""
        return next((chunk for chunk in (self.left, self.right) if chunk.host != self.host), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """The other instance that has to be there."""
        return () if self.remote is None else (self.remote.host,)

    @property
    def mirrored(self) -> bool:
        """True if the tile serves its columns too."""
        return self.self_join and self.left != self.right

    @property
    def in_order(self) -> bool:
        """True if the places of its rows and columns are their numbers."""
        return self.left.in_order and self.right.in_order

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the left chunk by their places."""
        return self.left.numbers_of(places)

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the right chunk by their places."""
        return self.right.numbers_of(places)

    def __str__(self) -> str:
        # By the rows' numbers alone, and a piece by where it lies in the pair: a record does not say where rows lie.
        piece = shifted(self.tile, -self.left.range.start, -self.right.range.start)
        is_whole = (piece.rows.rows, piece.columns.rows) == (self.left.rows, self.right.rows)
        return f"{self.left} with {self.right}" + ("" if is_whole else f": {piece}")


def block_pairs(transfer: Transfer) -> Iterator[BlockPair]:
    """Yield the pairs of a transfer: queries left, the matrix right, or of a self-join in the order of the places."""
    for own in transfer.partners:
        if transfer.brings == "either":
            # Whichever of the two travels: a pair has one name, by which a run that sends others finds it recorded.
            left, right = sorted((transfer.chunk, own), key=lambda chunk: (natural(chunk.host), chunk.start))
        else:
            left, right = (transfer.chunk, own) if transfer.brings == "queries" else (own, transfer.chunk)
        yield BlockPair(
            tile=TileBlock(left.range, right.range),
            self_join=transfer.brings == "either",
            host=transfer.host,
            left=left,
            right=right,
        )


def cut(shard: Shard, chunk_rows: int, origin: int = 0) -> tuple[RowChunk, ...]:
    """Cut an instance's rows into chunks of nearly equal size.

    Args:
        shard: The rows.
        chunk_rows: No chunk has more.
        origin: The place of the instance's first row.
    """
    rows = shard.rows
    count = math.ceil(rows / chunk_rows)
    # Each from the whole: sizes differ by one row at most, and the last is no small rest.
    edges = [rows * at // count for at in range(count + 1)] if count else [0]
    return tuple(
        RowChunk(shard.host, start, stop, shard.portion(start, stop), origin)
        for start, stop in zip(edges, edges[1:], strict=False)
        if start < stop
    )


def rotate(shares: Mapping[str, Sequence[RowChunk]]) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order in which they are to be computed.

    First come the instance's own chunks, each with itself: that gives every row its first bound. Then each meets those
    behind it, then the others' chunks come, those of the next one on the circle first, so that at any moment each
    instance sends to one and receives from one.
    """
    transfers: dict[str, list[Transfer]] = {}
    for host, own in shares.items():
        transfers[host] = [Transfer(host, chunk, (chunk,)) for chunk in own]
        transfers[host] += [Transfer(host, chunk, tuple(own[at:])) for at, chunk in enumerate(own[:-1], start=1)]
    # An instance without rows has nothing to compare: on the ring it would only spoil the halves.
    ring = [host for host, own in shares.items() if own]
    count = len(ring)
    for at, host in enumerate(ring):
        own = tuple(shares[host])
        for distance in range(1, count // 2 + 1):
            other = shares[ring[(at + distance) % count]]
            if 2 * distance < count:
                coming, partners = other, own
            elif at < count // 2:
                # Opposites: the first half of the other's chunks comes here,
                coming, partners = other[: len(other) // 2], own
            else:
                # and all of this one's opposite come to it, for its own second half.
                coming, partners = other, own[len(own) // 2 :]
            transfers[host] += [Transfer(host, chunk, partners) for chunk in coming if partners]
    return transfers


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The queries, or the matrix, in chunks."""

    brings: Brings
    shares: Mapping[str, Sequence[RowChunk]]
    """The chunks of each instance; if every instance has all rows, each has all chunks."""
    everywhere: bool
    """True if every instance has all of them."""
    bytes: float = 0.0


def rotate_queries(queries: Side, matrix: Side) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order in which they are to be computed."""
    staying, moving = (queries, matrix) if matrix.everywhere else (matrix, queries)
    if not (queries.everywhere or matrix.everywhere) and matrix.bytes < queries.bytes:
        staying, moving = queries, matrix
    transfers: dict[str, list[Transfer]] = {host: [] for host in staying.shares}
    hosts = list(moving.shares)
    for host, own in staying.shares.items():
        # The instance's own first, then those of the next ones on the circle: each sends to one at a time.
        at = hosts.index(host) if host in hosts else 0
        sources = [host] if moving.everywhere else [*hosts[at:], *hosts[:at]]
        coming = [chunk for source in sources for chunk in moving.shares[source]]
        transfers[host] += [Transfer(host, chunk, tuple(own), moving.brings) for chunk in coming if own]
    return transfers

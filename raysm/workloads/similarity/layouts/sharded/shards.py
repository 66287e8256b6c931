"""A sharded matrix on its way through a run: asked for, prepared, and dealt.

**Memory of an instance**, beside the mapped files of its own share, about 1/n of the matrix: what the tasks of a
replicated matrix take (``bench``), and its part of the object store, which ``feed`` bounds. A parcel is at most
``PARCEL_BYTES``, and small enough for those that are there at once to take half of the smallest object store.

**Bytes.** ``schedule`` counts the rows that each instance sends; a row is ``columns * itemsize`` bytes, or what its
elements take where it is sparse. What each really sent is among the run's measures. Beside it travel the norms of all
rows, 8 bytes each, once to every instance, and the results to the head.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.bootstrap import environment
from raysm.errors import InvalidInput, InvalidRequest
from raysm.workloads.blocks import RowBlock, map_blocks
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.similarity.layouts.sharded import spread
from raysm.workloads.similarity.layouts.sharded.index import Shard, ShardIndex, join, report
from raysm.workloads.similarity.layouts.sharded.modes import Deal
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import LEAVING, WINDOW
from raysm.workloads.similarity.layouts.sharded.resident_rows import ShardContext
from raysm.workloads.similarity.layouts.sharded.schedule import Share, cut, deal
from raysm.workloads.similarity.layouts.sharded.spread import SpreadMatrix
from raysm.workloads.similarity.sizing import sizes
from raysm.workloads.similarity.tasks import preparing
from raysm.workloads.similarity.tasks.context import Context, Source
from raysm.workloads.similarity.tasks.parts import Part, measured
from raysm.workloads.similarity.work import Work

__all__ = ["Shards"]

PARCEL_BYTES = 32 << 20
"""Largest parcel: some tenths of a second of computing with each other."""

BLOCKS_A_SLOT = 2
"""Tasks that prepare rows, for each slot."""


@dataclass(frozen=True, slots=True)
class HostRows(PlacedBlock):
    """Rows in line, and the instance that has them."""

    host: str
    """Its name."""
    rows: RowBlock
    """Where they are in line."""

    def __str__(self) -> str:
        """Return the block's name in messages."""
        return f"{self.rows} in line, on {self.host}"


class Shards:
    """The matrix of a channel whose files are spread over the instances.

    Attributes:
        matrix: What the head knows of it.
        index: Where the rows are.
        slots: Tasks that each instance runs at once.
        starts: Where each instance's rows begin in line.
    """

    def __init__(self, source: Source) -> None:
        """Ask every instance for its files; each maps them, or converts them once.

        Raises:
            InvalidInput: The files make no matrix; the message says which, and where.
            InvalidRequest: A head that only coordinates has files.
            InstanceLost: An instance is not there.
        """
        self._source = source
        hosts = [host.name for host in environment.read().hosts]
        self.index: ShardIndex = join(spread.answers(spread.ask_all(report, source)), hosts, source.channel)
        self.matrix = SpreadMatrix(self.index, source)
        nodes = spread.nodes_by_host()
        self.slots = {shard.host: int(nodes[shard.host]["Resources"].get("CPU", 0)) for shard in self.index.shards}
        for shard in self.index.shards:
            if shard.rows and not self.slots[shard.host]:
                raise InvalidRequest(
                    f"{shard.rows} rows of the channel {source.channel!r} lie on {shard.host}, which only coordinates; "
                    "let the head compute, or make the channel FullyReplicated"
                )
        stores = [nodes[shard.host]["Resources"].get("object_store_memory", 0) for shard in self.index.shards]
        self._parcel_bytes = min(PARCEL_BYTES, int(min(stores)) // (2 * (WINDOW + LEAVING)))
        ends = np.cumsum([0, *(shard.rows for shard in self.index.shards)]).tolist()
        self.starts = {shard.host: start for shard, start in zip(self.index.shards, ends, strict=False)}

    def context(self) -> ShardContext:
        """Return what tasks are told before anything is prepared."""
        return ShardContext(
            source=self._source,
            rows=self.index.rows,
            columns=self.index.columns,
            norms=np.empty(0),
            exponents=np.empty(0, dtype=np.int16),
            starts=self.starts,
            dtype=self.index.dtype,
            sparse=self._by_elements(),
        )

    def _by_elements(self) -> bool:
        """Return whether rows are compared by their elements: what the instance with the most rows says."""
        if not self.index.sparse:
            return False
        largest = max(self.index.shards, key=lambda shard: shard.rows)
        return bool(spread.answers([spread.asked(largest.host, _sparse_pays, self._source, self.index.rows)])[0])

    def digest(self) -> str:
        """Return the digest of the matrix: that of the same files in one folder."""
        return spread.digest_of(self.index, spread.ask_all(spread.digests, self._source))

    def prepare(self, work: Work, context: ShardContext) -> Iterator[tuple[RowBlock, Part]]:
        """Prepare all rows where they lie.

        Raises:
            InvalidInput: A row holds NaN or infinity; the first such row is named, and its file.
        """
        first_bad = self.index.rows
        shards = {shard.host: shard for shard in self.index.shards}
        for block, part in map_blocks(partial(measured, _prepare, context), self._host_rows()):
            work.took_part(part)
            bad = int(part.arrays["first_bad"])
            if bad >= 0:
                shard = shards[block.host]
                first_bad = min(first_bad, self.index.number(shard, bad - self.starts[block.host]))
            yield block.rows, part
        if first_bad < self.index.rows:
            raise InvalidInput(
                f"row {first_bad} of the matrix (counted from 0) holds NaN or infinity, the first such row "
                f"({self.index.file_of(first_bad)}); replace it"
            )

    def _host_rows(self) -> list[HostRows]:
        blocks = []
        for shard in self.index.shards:
            start = self.starts[shard.host]
            size = max(1, math.ceil(shard.rows / (BLOCKS_A_SLOT * max(1, self.slots[shard.host]))))
            blocks += [
                HostRows(shard.host, RowBlock(start + at, start + min(at + size, shard.rows)))
                for at in range(0, shard.rows, size)
            ]
        return blocks

    def deal(self, work: Work) -> Deal:
        """Cut every share into parcels, and say who meets whom where."""
        shares = [self._share(work, shard) for shard in self.index.shards]
        return Deal(
            index=self.index,
            starts=self.starts,
            visits=deal(shares),
            slots=self.slots,
            send=spread.sender(self._source, self.index.dtype),
        )

    def _share(self, work: Work, shard: Shard) -> Share:
        row_bytes = max(1, shard.bytes // max(1, shard.rows))
        most = sizes.most_rows(work.workload, self.matrix, sparse=work.context.sparse)
        most = min(most, max(1, self._parcel_bytes // row_bytes))
        asked = work.workload.block_rows
        parcels = cut(
            shard, slots=max(1, self.slots[shard.host]), most_rows=min(most, asked or most), exact=asked is not None
        )
        return Share(host=shard.host, slots=self.slots[shard.host], parcels=parcels)


def _sparse_pays(source: Source, rows: int) -> bool:
    return preparing.by_elements(source.open(), rows)


def _prepare(context: Context, block: HostRows) -> dict[str, NDArray[Any]]:
    return preparing.prepare_block(context, block.rows)

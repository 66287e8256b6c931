"""Rows that every instance has all of (FullyReplicated): loaded everywhere at once, prepared by any free slot."""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import ray

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock, map_blocks, task_slots
from raysm.workloads.nodes import answers, ask_every_node, cluster_nodes
from raysm.workloads.similarity.arithmetic.row_order import RowOrder, Run
from raysm.workloads.similarity.engines import compile_ahead
from raysm.workloads.similarity.layouts.rotation import RowChunk, cut
from raysm.workloads.similarity.layouts.shards import Shard
from raysm.workloads.similarity.reading import digests
from raysm.workloads.similarity.reading.matrix import Described, Matrix
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.tasks import preparing
from raysm.workloads.similarity.tasks.context import RowShape, Whole
from raysm.workloads.similarity.tasks.parts import Part, prepared_part

__all__ = ["WholeRows", "load_everywhere"]


@dataclass(frozen=True, slots=True)
class WholeRows:
    """The rows of a channel, as every instance has them."""

    source: Source
    """The channel."""
    described: Matrix
    """The rows, mapped here."""

    slots: ClassVar[Mapping[str, int]] = {}
    """None is asked for a share."""
    row_bytes: ClassVar[float] = 0.0
    """No row travels."""
    store_bytes: ClassVar[float] = math.inf

    @property
    def largest_share(self) -> int:
        """All of them."""
        return self.described.rows

    @property
    def order(self) -> RowOrder:
        """Their places are their numbers."""
        return RowOrder.identity(self.described.rows)

    def as_type(self, dtype: np.dtype[Any]) -> Described:
        """Return the rows, read as ``dtype``."""
        return self.described.as_type(dtype)

    def compares_elements(self) -> bool:
        """Return whether rows like these are compared by the columns that they share."""
        return preparing.compares_elements(self.described)

    def shape(self, dtype: np.dtype[Any], *, sparse: bool) -> RowShape:
        """Return what tasks are told before anything is prepared."""
        rows, columns = self.described.rows, self.described.columns
        return RowShape(
            source=self.source,
            rows=rows,
            columns=columns,
            dtype=dtype,
            placement=Whole(rows, columns),
            sparse=sparse,
        )

    def digest(self) -> "Future[str]":
        """Return what will be the digest of the files; it may have been started while the cluster formed."""
        return digests.digest(self.source.here().channel)

    def prepared_parts(self, shape: RowShape, name: str) -> Iterator[tuple[RowBlock, Part]]:
        """Prepare blocks of rows on whichever instance is free."""
        blocks = preparing.prepare_blocks(shape, task_slots())
        yield from map_blocks(partial(prepared_part, preparing.prepare_block, shape), blocks)

    def chunks(self, hosts: Mapping[str, int], chunk_rows: int) -> dict[str, tuple[RowChunk, ...]]:
        """Return all rows for each of those instances, in the chunks in which every instance has them."""
        runs = (Run(0, 0, self.described.rows),)
        return {host: cut(Shard(host=host, runs=runs, bytes=0), chunk_rows) for host in hosts}

    def sent_bytes(self, sent_rows: Mapping[str, int]) -> dict[str, int]:
        """Return nothing: no instance sends what every other has."""
        return {}


def load_everywhere(sources: Sequence[Source]) -> list[WholeRows]:
    """Map the matrices here, while every other instance does the same.

    Raises:
        InvalidInput: An instance cannot use its files; the message says which, where, and why.
    """
    if not sources:
        return []
    own_id = ray.get_runtime_context().get_node_id()
    # One without a CPU computes nothing, and needs no rows.
    others = [node for node in cluster_nodes() if node.node_id != own_id and node.cpus]
    # Begun before the head maps its own: all instances convert at the same time.
    # For what has to be converted: it stays in the instance's scratch, where every task's process then maps it.
    loading = ask_every_node(_load_there, list(sources), nodes=others, num_cpus=1)
    opened = [WholeRows(source, source.open()) for source in sources]
    # An instance that went away has no answer; the next task there converts what it needs.
    answers(loading.values())
    return opened


def _load_there(sources: Sequence[Source]) -> None:
    # Now, so that no task waits for the compiler.
    compile_ahead()
    for source in sources:
        try:
            source.open()
        except InvalidInput as error:
            # Every instance has a file of that path: only the host says which of them is torn or another.
            raise InvalidInput(f"on {source.here().host}: {error}") from error

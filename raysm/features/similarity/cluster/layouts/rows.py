"""The rows of a channel: whole on every instance (FullyReplicated), or sharded over them (ShardedByS3Key).

Whole rows are loaded everywhere at once, and prepared by any free slot. Sharded rows are described,
prepared, and cut into chunks on the instances that have them. A row that is sent takes
``columns * itemsize`` bytes, or the bytes of its elements if it is sparse; the run's measures have
the bytes that each instance really sent. Besides rows, every instance receives the norms of all
rows once, 8 bytes each, and owners receive the results.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import ray
from numpy.typing import NDArray

from raysm.core.protocol.names import LABEL_HOST, natural
from raysm.errors import InstanceLost, InvalidInput, InvalidRequest
from raysm.features.similarity.cluster.arithmetic.tiling import RowOrder, RowRun
from raysm.features.similarity.cluster.engines.choice import compile_ahead
from raysm.features.similarity.cluster.layouts.rotation import RowChunk, cut, portion
from raysm.features.similarity.cluster.layouts.shards import (
    OnHost,
    Shard,
    ShardIndex,
    features_here,
    join,
    naming_instance,
    report,
)
from raysm.features.similarity.cluster.reading.columns import Features, agreed
from raysm.features.similarity.cluster.reading.files import (
    digest,
    file_digests,
    in_thread,
    join_digests,
    matrix_files,
)
from raysm.features.similarity.cluster.reading.matrix import Described, Matrix, Source
from raysm.features.similarity.cluster.tasks import preparing
from raysm.features.similarity.cluster.tasks.context import RowShape
from raysm.features.similarity.cluster.tasks.parts import Part, prepared_part
from raysm.instance import environment
from raysm.instance.log import remark
from raysm.instance.work.blocks import map_blocks, map_here, task_slots
from raysm.instance.work.nodes import answers, ask_every_node, cluster_nodes
from raysm.instance.work.row_blocks import RowBlock

BLOCKS_A_SLOT = 2
"""Tasks that prepare rows, for each slot."""


def with_features(source: Source, expected: Features | None = None) -> Source:
    """Return the source with the features, in their order, that its files and the matrix (``expected``) have."""
    found = (
        answers(ask_every_node(features_here, source).values())
        if source.sharded
        else [source.features()]
    )
    return replace(source, expected=agreed(found, expected))


def send_chunk(source: Source, dtype: np.dtype[Any], chunk: RowChunk) -> Any:
    """Put a chunk's rows into Ray's object store, on the instance that has them; return the reference.

    If the object is lost, Ray makes it again there.
    """
    # num_cpus=0: otherwise this task would wait behind tasks that compute, while the next ones wait
    # for its rows.
    task = ray.remote(num_cpus=0, max_retries=3)(portion)
    name = f"rows of {chunk.host}"
    return task.options(name=name, label_selector={LABEL_HOST: chunk.host}).remote(
        source, chunk, dtype
    )


def _digest_of(index: ShardIndex, waiting: list[Any]) -> str:
    """Return the matrix's digest, that of the same files in one folder, from the answers of all instances."""
    # Use the order of names: the digest must not depend on which instance has which file.
    sums = dict(pair for answer in answers(waiting) for pair in answer)
    if silent := {
        host for name, host in zip(index.names, index.hosts, strict=True) if name not in sums
    }:
        raise InstanceLost(
            f"{', '.join(sorted(silent, key=natural))} went away while its files were digested; start the job again"
        )
    return join_digests([(name, sums[name]) for name in index.names])


def _digests(source: Source) -> list[tuple[str, str]]:
    # ``file_digests`` refuses an empty channel, but an instance's share may be empty.
    return file_digests(source.here().channel) if source.has_files() else []


class ShardedRows:
    """The rows of a channel, each on one instance; ``described`` is ``index``, as ``WholeRows`` names it."""

    computed_here: ClassVar[bool] = False

    def __init__(self, source: Source) -> None:
        """Ask every instance for its files; each maps them, or converts them once."""
        self.source = source
        # Expect all instances of the job, not only those that joined Ray: no other instance has a
        # missing one's rows.
        hosts = [host.name for host in environment.read().hosts]
        self.described = self.index = join(
            answers(ask_every_node(report, source).values()), hosts, source
        )
        nodes = {node.host: node for node in cluster_nodes()}
        self.slots: Mapping[str, int] = {
            shard.host: nodes[shard.host].cpus for shard in self.index.shards
        }
        for shard in self.index.shards:
            # SageMaker divides the files among all instances, including a head that only
            # coordinates.
            if shard.rows and not self.slots[shard.host]:
                raise InvalidRequest(
                    f"{shard.rows} rows of the channel {source.channel!r} lie on {shard.host}, which only coordinates; "
                    "let the head compute, or make the channel FullyReplicated"
                )
        self.store_bytes: float = min(
            nodes[shard.host].object_store_bytes for shard in self.index.shards
        )
        ends = np.cumsum([0, *(shard.rows for shard in self.index.shards)]).tolist()
        self._starts = {
            shard.host: start for shard, start in zip(self.index.shards, ends, strict=False)
        }

    @property
    def order(self) -> RowOrder:
        """Numbers and places of the rows: the first instance's rows have the first places, then come the second's."""
        runs = [
            (self._starts[shard.host], run) for shard in self.index.shards for run in shard.runs
        ]
        return RowOrder.of([RowRun(run.start, start + run.offset, run.rows) for start, run in runs])

    def as_type(self, dtype: np.dtype[Any]) -> Described:
        return replace(self.index, dtype=dtype)

    def compares_elements(self) -> bool:
        """Return whether rows are compared by their elements; the instance with the most rows decides."""
        # One instance decides for all, because all rows must be prepared alike.
        largest = max(self.index.shards, key=lambda shard: shard.rows)
        block = OnHost(largest.host, self._range(largest.host, 0, largest.rows))
        [(_, pays)] = map_blocks(
            partial(_sparse_pays, self.source, self.index.rows), [block], num_cpus=0
        )
        return pays

    def shape(self, dtype: np.dtype[Any], *, sparse: bool) -> RowShape:
        return RowShape(
            source=self.source,
            rows=self.index.rows,
            columns=self.index.columns,
            dtype=dtype,
            ranges={
                shard.host: self._range(shard.host, 0, shard.rows) for shard in self.index.shards
            },
            sparse=sparse,
        )

    def _range(self, host: str, start: int, stop: int) -> RowBlock:
        return RowBlock(self._starts[host] + start, self._starts[host] + stop)

    def digest(self) -> "Future[str]":
        """Return a future of the digest of the files, which is the same as if they were in one folder."""
        # Ask the instances now, so that they begin; the thread only waits for them.
        waiting = list(ask_every_node(_digests, self.source).values())
        return in_thread(lambda: _digest_of(self.index, waiting))

    def prepared_parts(self, shape: RowShape, name: str) -> Iterator[tuple[RowBlock, Part]]:
        """Prepare all rows on the instances that have them; a bad row is reported with its file."""
        first_bad = self.index.rows
        shards = {shard.host: shard for shard in self.index.shards}
        for block, part in map_blocks(partial(prepared_part, _prepare, shape), self._host_rows()):
            bad = int(part.arrays["first_bad"])
            if bad >= 0:
                # Compare numbers, because the order of places differs from that of the matrix.
                number = self.index.number(shards[block.host], bad - self._starts[block.host])
                first_bad = min(first_bad, number)
            yield block.what, part
        # Raise only when all parts are there, so that the message names the same row whichever
        # block comes first.
        if first_bad < self.index.rows:
            raise InvalidInput(
                f"row {first_bad} of {name} (counted from 0) holds NaN or infinity, the first such row "
                f"({self.index.file_of(first_bad)}); replace it"
            )

    def _host_rows(self) -> list[OnHost]:
        blocks = []
        for shard in self.index.shards:
            size = max(1, math.ceil(shard.rows / (BLOCKS_A_SLOT * max(1, self.slots[shard.host]))))
            ranges = [(at, min(at + size, shard.rows)) for at in range(0, shard.rows, size)]
            blocks += [OnHost(shard.host, self._range(shard.host, *ends)) for ends in ranges]
        return blocks

    @property
    def row_bytes(self) -> float:
        return sum(shard.bytes for shard in self.index.shards) / self.index.rows

    @property
    def largest_share(self) -> int:
        return max(shard.rows for shard in self.index.shards)

    def chunks(self, hosts: Mapping[str, int], chunk_rows: int) -> dict[str, tuple[RowChunk, ...]]:
        return {
            shard.host: cut(shard, chunk_rows, self._starts[shard.host])
            for shard in self.index.shards
        }

    def sent_bytes(self, sent_rows: Mapping[str, int]) -> dict[str, int]:
        return {
            shard.host: sent_rows[shard.host] * shard.bytes // max(1, shard.rows)
            for shard in self.index.shards
        }


def _sparse_pays(source: Source, rows: int, block: OnHost) -> bool:
    return preparing.by_elements(source.open(), rows)


def _prepare(shape: RowShape, block: OnHost) -> dict[str, NDArray[Any]]:
    return preparing.prepare_block(shape, block.what)


@dataclass(frozen=True, slots=True)
class WholeRows:
    source: Source
    described: Matrix
    computed_here: bool = False
    """This process computes all of the result, because starting workers would take longer."""

    slots: ClassVar[Mapping[str, int]] = {}
    row_bytes: ClassVar[float] = 0.0
    store_bytes: ClassVar[float] = math.inf

    @property
    def largest_share(self) -> int:
        return self.described.rows

    @property
    def order(self) -> RowOrder:
        """Numbers and places of the rows, which are equal."""
        return RowOrder.identity(self.described.rows)

    def as_type(self, dtype: np.dtype[Any]) -> Described:
        return self.described.as_type(dtype)

    def compares_elements(self) -> bool:
        return preparing.compares_elements(self.described)

    def shape(self, dtype: np.dtype[Any], *, sparse: bool) -> RowShape:
        rows, columns = self.described.rows, self.described.columns
        return RowShape(source=self.source, rows=rows, columns=columns, dtype=dtype, sparse=sparse)

    def digest(self) -> "Future[str]":
        """Return a future of the digest of the files; it may have been started while the cluster formed."""
        return digest(self.source.here().channel)

    def prepared_parts(self, shape: RowShape, name: str) -> Iterator[tuple[RowBlock, Part]]:
        run_blocks = map_here if self.computed_here else map_blocks
        blocks = preparing.prepare_blocks(shape, task_slots())
        yield from run_blocks(partial(prepared_part, preparing.prepare_block, shape), blocks)

    def chunks(self, hosts: Mapping[str, int], chunk_rows: int) -> dict[str, tuple[RowChunk, ...]]:
        """Return all rows for each of those instances, in the chunks in which every instance has them."""
        runs = (RowRun(0, 0, self.described.rows),)
        return {host: cut(Shard(host=host, runs=runs, bytes=0), chunk_rows) for host in hosts}

    def sent_bytes(self, sent_rows: Mapping[str, int]) -> dict[str, int]:
        return {}


SMALL_WORK = 1 << 29
"""Multiplications that a process does in less time than it takes to start another one."""


def load_everywhere(sources: Sequence[Source], small_bytes: int = 0) -> list[WholeRows]:
    """Map the matrices here, while every other instance does the same.

    If their files have at most ``small_bytes``, and comparing their rows is little work, only this
    process needs them.
    """
    if not sources:
        return []
    nodes, own_id = cluster_nodes(), ray.get_runtime_context().get_node_id()
    if (
        small_bytes
        and any(node.node_id == own_id and node.cpus for node in nodes)
        and not any(n.gpus for n in nodes)
    ):
        files = [file for source in sources for _, file in matrix_files(source.here().channel)]
        if sum(file.stat().st_size for file in files) <= small_bytes:
            matrices = [source.open() for source in sources]
            if matrices[0].rows * matrices[-1].rows * matrices[0].columns <= SMALL_WORK:
                if len(nodes) > 1:
                    remark("the head computes all of it alone, because there is little to compute")
                return [
                    WholeRows(*each, computed_here=True)
                    for each in zip(sources, matrices, strict=True)
                ]
    # A node without CPUs computes nothing, and needs no rows.
    others = [node for node in nodes if node.node_id != own_id and node.cpus]
    # Start the others before the head maps its own rows, so that all instances convert at the same
    # time. Converted files stay in an instance's scratch folder, where the processes of its tasks
    # map them.
    loading = ask_every_node(_load_there, list(sources), nodes=others, num_cpus=1)
    opened = [WholeRows(source, source.open()) for source in sources]
    # A lost instance gives no answer; if it comes back, the next task there converts its files.
    answers(loading.values())
    return opened


def _load_there(sources: Sequence[Source]) -> None:
    # Compile now, so that no task waits for the compiler.
    compile_ahead()
    for source in sources:
        with naming_instance(source):
            source.open()

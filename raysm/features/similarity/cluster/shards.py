"""The rows of a sharded channel (ShardedByS3Key): their index, and the instances that have them.

Each instance reports its files, and the head joins the reports. The order of the matrix's rows is
the natural order of all files' names over all instances, as if every file lay in one folder. So an
instance has several *runs* of consecutive rows; the rows between them are on other instances.

Sharded rows are described, prepared, and split into chunks on the instances that have them. A row
that is sent takes ``columns * itemsize`` bytes, or the bytes of its elements if it is sparse; the
run's measures have the bytes that each instance really sent. Besides rows, every instance receives
the norms of all rows once, 8 bytes each, and owners receive the results.
"""

import hashlib
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from numpy.typing import NDArray

from raysm.core.protocol.names import LABEL_HOST, natural
from raysm.errors import InstanceLost, InvalidInput, InvalidRequest
from raysm.features.similarity.cluster.preparation import by_elements, prepare_block
from raysm.features.similarity.cluster.reading.columns import Features, type_name
from raysm.features.similarity.cluster.reading.files import (
    file_digests,
    join_digests,
    run_in_thread,
)
from raysm.features.similarity.cluster.reading.matrix import Matrix, MatrixInfo, Source
from raysm.features.similarity.cluster.tasks import Part, RowShape, run_preparation
from raysm.features.similarity.cluster.tiling import RowOrder, RowRun
from raysm.instance import environment
from raysm.instance.work.blocks import map_blocks
from raysm.instance.work.nodes import PlacedBlock, answers, ask_every_node, cluster_nodes
from raysm.instance.work.row_blocks import RowBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFile:
    name: str
    rows: int
    columns: int
    dtype: np.dtype[Any]
    ids: pa.DataType | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardReport:
    host: str
    files: tuple[ShardFile, ...]
    """In natural order; empty if it got no share."""
    sparse: bool = False
    bytes: int = 0
    """Size of its rows, as they are sent."""
    elements: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    host: str
    runs: tuple[RowRun, ...]
    bytes: int

    @property
    def rows(self) -> int:
        return self.runs[-1].offset + self.runs[-1].rows if self.runs else 0

    def portion(self, start: int, stop: int) -> tuple[RowRun, ...]:
        """Return the runs of its own rows start to stop; offsets count from ``start``."""
        first = bisect_right(self.runs, start, key=lambda run: run.offset) - 1
        runs = []
        for run in self.runs[first:]:
            low = max(start, run.offset)
            high = min(stop, run.offset + run.rows)
            if low >= high:
                break
            runs.append(RowRun(run.start + low - run.offset, low - start, high - low))
        return tuple(runs)


@dataclass(frozen=True, slots=True)
class OnHost(PlacedBlock):
    """A file's name or a block of rows, by their places, and the instance that has them."""

    host: str
    what: Any

    def __str__(self) -> str:
        return f"{self.what} on {self.host}"


@contextmanager
def name_instance_in_errors(source: Source) -> Iterator[None]:
    """Add the instance to errors of its files, because all instances have the same folders."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"on {source.here().host}: {error}") from error


# Not frozen, because the protocol ``MatrixInfo`` has writable attributes.
@dataclass(kw_only=True, slots=True)
class ShardIndex:
    """All files of a sharded matrix, as the head knows them: a ``MatrixInfo`` without rows."""

    source: Source
    rows: int
    columns: int
    dtype: np.dtype[Any]
    sparse: bool
    elements: int
    ids: pa.DataType | None
    names: list[str]
    starts: list[int]
    hosts: list[str]
    shards: tuple[Shard, ...]
    """One for each instance, including those without files."""

    def id_batches(self) -> Iterator[pa.Array]:
        files = [OnHost(host, name) for name, host in zip(self.names, self.hosts, strict=True)]
        # Read them in any order, because the caller holds all ids in the end.
        ids = dict(map_blocks(partial(_ids, self.source), files, num_cpus=0))
        yield from (ids[file] for file in files)

    def number(self, shard: Shard, row: int) -> int:
        return shard.portion(row, row + 1)[0].start

    def file_of(self, row: int) -> str:
        """Return the name of the file that holds the row, and where it lies, for messages."""
        # If several files begin at the row, take the last: the others have no rows.
        at = bisect_right(self.starts, row) - 1
        return f"{self.names[at]} on {self.hosts[at]}, row {row - self.starts[at]} of it"


def report_files(source: Source) -> ShardReport:
    """Report this instance's files; convert those that cannot be mapped as they are."""
    location = source.here()
    if not source.has_files():
        # If there are fewer files than instances, some get none. ``join_reports`` raises an error
        # if all have none.
        return ShardReport(host=location.host, files=())
    with name_instance_in_errors(source):
        matrix = source.open()
    files = tuple(
        ShardFile(name=name, rows=rows, columns=matrix.columns, dtype=dtype, ids=matrix.ids)
        for name, rows, dtype in matrix.files
    )
    return ShardReport(
        host=location.host,
        files=files,
        sparse=matrix.sparse,
        bytes=matrix.nbytes,
        elements=matrix.elements,
    )


def _ids(source: Source, file: OnHost) -> pa.Array:
    own = source.open()
    # Not ``read_table``, which imports pyarrow.dataset.
    with pq.ParquetFile(own.id_files[own.names.index(file.what)]) as opened:
        return opened.read()["id"].combine_chunks()


def features_here(source: Source) -> Features | None:
    with name_instance_in_errors(source):
        return source.features()


def join_reports(
    reports: Sequence[ShardReport], hosts: Sequence[str], source: Source
) -> ShardIndex:
    """Join the reports of all instances.

    ``hosts`` are the instances among which the service divided the files.

    Raises:
        InstanceLost: An instance has not reported: its rows would be missing.
        InvalidInput: There are no files; a file is on two instances; the names show that one is
            missing; or the files differ in columns or id types.
    """
    channel = source.channel
    # Check this first: to the checks below, a missing instance would look like an error of the
    # input.
    if missing := sorted(set(hosts) - {one.host for one in reports}, key=natural):
        raise InstanceLost(
            f"{', '.join(missing)} did not report any files of the channel {channel!r}, which is "
            "sharded: its rows are "
            "nowhere else; start the job again, with all its instances"
        )
    owner_of: dict[str, str] = {}
    files: dict[str, ShardFile] = {}
    # Sorted, so that the index does not depend on which instance answered first.
    reports = sorted(reports, key=lambda one: natural(one.host))
    for one in reports:
        for file in one.files:
            if file.name in files:
                raise InvalidInput(
                    f"{file.name} lies on {owner_of[file.name]} and on {one.host}: of a "
                    "ShardedByS3Key channel each "
                    "file lies on one instance; rename one of them, or make the channel "
                    f"{channel!r} FullyReplicated"
                )
            owner_of[file.name] = one.host
            files[file.name] = file
    names = sorted(files, key=natural)
    if not names:
        raise InvalidInput(
            f"the channel {channel!r} holds no files on any instance; put the rows of the matrix "
            "there"
        )
    # Only the names (``part-3-of-10``) can show that a file is missing, because each instance knows
    # only its own files.
    numbers: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for name in names:
        if match := re.search(r"(?<!\d)(\d+)-of-(\d+)(?!\d)", name):
            numbers[name[: match.start()], name[match.end() :], int(match[2])].add(int(match[1]))
    for (before, after, count), there in numbers.items():
        # Some writers count from 0, others from 1.
        first_number = 0 if 0 in there else 1
        if absent := set(range(first_number, first_number + count)) - there:
            raise InvalidInput(
                f"no instance has file {min(absent)} of {before}*-of-{count}{after} "
                f"({len(absent)} of {count} are "
                "missing); bring them, or rename the files if they are all there are"
            )
    first = files[names[0]]
    for name in names:
        if files[name].columns != first.columns:
            raise InvalidInput(
                f"{name} has {files[name].columns} columns, {first.name} has {first.columns}; all "
                "need the same columns"
            )
        if files[name].ids != first.ids:
            raise InvalidInput(
                f"the ids of {name} are {type_name(files[name].ids)}, those of {first.name} are "
                f"{type_name(first.ids)}; write all files with one type (ids of a CSV are text)"
            )
    starts = np.cumsum([0, *(files[name].rows for name in names)]).tolist()
    if starts[-1] == 0:
        raise InvalidInput(
            f"the files of the channel {channel!r} hold no rows; there is nothing to compute"
        )
    owners = [owner_of[name] for name in names]
    runs = _runs([files[name].rows for name in names], starts, owners)
    return ShardIndex(
        source=source,
        rows=starts[-1],
        columns=first.columns,
        dtype=np.result_type(*(file.dtype for file in files.values())),
        # Ignore instances without files, which report dense rows.
        sparse=all(one.sparse for one in reports if one.files),
        elements=sum(one.elements for one in reports),
        ids=first.ids,
        names=names,
        starts=starts[:-1],
        hosts=owners,
        shards=tuple(
            Shard(host=one.host, runs=tuple(runs[one.host]), bytes=one.bytes) for one in reports
        ),
    )


def _runs(
    rows: Sequence[int], starts: Sequence[int], owners: Sequence[str]
) -> Mapping[str, list[RowRun]]:
    runs: dict[str, list[RowRun]] = defaultdict(list)
    # Not strict: ``starts`` has one more entry, the end of the last file.
    for count, start, host in zip(rows, starts, owners, strict=False):
        own = runs[host]
        offset = own[-1].offset + own[-1].rows if own else 0
        if own and own[-1].start + own[-1].rows == start:
            own[-1] = RowRun(own[-1].start, own[-1].offset, own[-1].rows + count)
        # Leave out empty runs, at which the loop of ``read_chunk`` would stop.
        elif count:
            own.append(RowRun(start, offset, count))
    return runs


# ---- chunks of an instance's rows


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Consecutive rows of one instance, which are sent together and are one side of a task."""

    host: str
    start: int
    """Its first row, counted among the instance's own rows."""
    stop: int
    runs: tuple[RowRun, ...]
    """Their numbers in the matrix, rising; offsets count from the chunk's first row."""
    origin: int = 0
    """The place of the instance's own first row."""

    @property
    def range(self) -> RowBlock:
        return RowBlock(self.origin + self.start, self.origin + self.stop)

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def in_order(self) -> bool:
        """True if the places of its rows are their numbers."""
        return len(self.runs) == 1 and self.runs[0].start == self.range.start

    def numbers(self) -> NDArray[np.int64]:
        return np.concatenate([np.arange(run.start, run.start + run.rows) for run in self.runs])

    def numbers_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places if self.in_order else self.numbers()[places - self.range.start]

    def __str__(self) -> str:
        """Name it by its rows' numbers, which do not depend on the instance that has them."""
        first = self.runs[0].start
        last = self.runs[-1].start + self.runs[-1].rows - 1
        if len(self.runs) == 1:
            return f"rows {first} to {last}"
        # Digest the runs: with thousands of small files, their list would make every message and
        # log line too long.
        text = ",".join(f"{run.start}+{run.rows}" for run in self.runs)
        return (
            f"{self.rows} of rows {first} to {last} "
            f"({hashlib.sha256(text.encode()).hexdigest()[:16]})"
        )


def split_shard(shard: Shard, chunk_rows: int, origin: int = 0) -> tuple[RowChunk, ...]:
    """Split an instance's rows into chunks of nearly equal size.

    ``origin`` is the place of its first row.
    """
    rows = shard.rows
    count = math.ceil(rows / chunk_rows)
    # Sizes differ by one row at most, so the last chunk is not a small rest.
    edges = [rows * at // count for at in range(count + 1)] if count else [0]
    ranges = [(start, stop) for start, stop in zip(edges, edges[1:], strict=False) if start < stop]
    return tuple(
        RowChunk(shard.host, start, stop, shard.portion(start, stop), origin)
        for start, stop in ranges
    )


def read_chunk(source: Source, chunk: RowChunk, dtype: np.dtype[Any]) -> Matrix:
    """Return a chunk's rows, on the instance that has them; only these rows are pickled."""
    own = source.open()
    if own.rows < chunk.stop:
        raise InvalidInput(
            f"{chunk.host} has {own.rows} rows, and had more: its files changed while the job ran"
        )
    return own.portion(chunk.start, chunk.stop, dtype)


# ---- the rows of a sharded channel

BLOCKS_A_SLOT = 2
"""Tasks that prepare rows, for each slot."""


def send_chunk(source: Source, dtype: np.dtype[Any], chunk: RowChunk) -> Any:
    """Put a chunk's rows into Ray's object store, on the instance that has them.

    Return the reference. If the object is lost, Ray makes it again there.
    """
    # num_cpus=0: otherwise this task would wait behind tasks that compute, while the next ones wait
    # for its rows.
    task = ray.remote(num_cpus=0, max_retries=3)(read_chunk)
    name = f"rows of {chunk.host}"
    return task.options(name=name, label_selector={LABEL_HOST: chunk.host}).remote(
        source, chunk, dtype
    )


def _join_digests(index: ShardIndex, waiting: list[Any]) -> str:
    """Return the matrix's digest, as of one folder, from the answers of all instances."""
    # Use the order of names: the digest must not depend on which instance has which file.
    sums = dict(pair for answer in answers(waiting) for pair in answer)
    if silent := {
        host for name, host in zip(index.names, index.hosts, strict=True) if name not in sums
    }:
        raise InstanceLost(
            f"{', '.join(sorted(silent, key=natural))} went away while its files were digested; "
            "start the job again"
        )
    return join_digests([(name, sums[name]) for name in index.names])


def _digests(source: Source) -> list[tuple[str, str]]:
    # ``file_digests`` refuses an empty channel, but an instance's share may be empty.
    return file_digests(source.here().channel) if source.has_files() else []


class ShardedRows:
    """The rows of a channel, each on one instance.

    ``described`` is ``index``, as ``WholeRows`` names it.
    """

    computed_here: ClassVar[bool] = False

    def __init__(self, source: Source) -> None:
        """Ask every instance for its files; each maps them, or converts them once."""
        self.source = source
        # Expect all instances of the job, not only those that joined Ray: no other instance has a
        # missing one's rows.
        hosts = [host.name for host in environment.read().hosts]
        self.described = self.index = join_reports(
            answers(ask_every_node(report_files, source).values()), hosts, source
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
                    f"{shard.rows} rows of the channel {source.channel!r} lie on {shard.host}, "
                    "which only coordinates; "
                    "let the head compute, or make the channel FullyReplicated"
                )
        self.gpus: Mapping[str, int] = {
            shard.host: nodes[shard.host].gpus for shard in self.index.shards
        }
        self.store_bytes: float = min(
            nodes[shard.host].object_store_bytes for shard in self.index.shards
        )
        ends = np.cumsum([0, *(shard.rows for shard in self.index.shards)]).tolist()
        self._starts = {
            shard.host: start for shard, start in zip(self.index.shards, ends, strict=False)
        }

    @property
    def hosts_without_gpus(self) -> list[str]:
        """The instances that have rows and no GPU."""
        return [s.host for s in self.index.shards if s.rows and not self.gpus[s.host]]

    def tasks_at_once(self, num_gpus: int) -> dict[str, int]:
        """Return how many tasks of one CPU and ``num_gpus`` GPUs each instance runs at a time."""
        return {
            host: min(cpus, self.gpus[host] // num_gpus) if num_gpus else cpus
            for host, cpus in self.slots.items()
        }

    @property
    def order(self) -> RowOrder:
        """Numbers and places of the rows; the first instance's rows have the first places."""
        runs = [
            (self._starts[shard.host], run) for shard in self.index.shards for run in shard.runs
        ]
        return RowOrder.of([RowRun(run.start, start + run.offset, run.rows) for start, run in runs])

    def as_type(self, dtype: np.dtype[Any]) -> MatrixInfo:
        return replace(self.index, dtype=dtype)

    def compares_elements(self) -> bool:
        """Return whether rows are compared by their elements.

        The instance with the most rows decides.
        """
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
        """Return a future of the digest of the files, as if they were in one folder."""
        # Ask the instances now, so that they begin; the thread only waits for them.
        waiting = list(ask_every_node(_digests, self.source).values())
        return run_in_thread(lambda: _join_digests(self.index, waiting))

    def prepared_parts(self, shape: RowShape, name: str) -> Iterator[tuple[RowBlock, Part]]:
        """Prepare all rows on the instances that have them; a bad row is reported with its file."""
        first_bad = self.index.rows
        shards = {shard.host: shard for shard in self.index.shards}
        for block, part in map_blocks(partial(run_preparation, _prepare, shape), self._host_rows()):
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
                f"row {first_bad} of {name} (counted from 0) holds NaN or infinity, the first "
                "such row "
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
            shard.host: split_shard(shard, chunk_rows, self._starts[shard.host])
            for shard in self.index.shards
        }

    def sent_bytes(self, sent_rows: Mapping[str, int]) -> dict[str, int]:
        return {
            shard.host: sent_rows[shard.host] * shard.bytes // max(1, shard.rows)
            for shard in self.index.shards
        }


def _sparse_pays(source: Source, rows: int, block: OnHost) -> bool:
    return by_elements(source.open(), rows)


def _prepare(shape: RowShape, block: OnHost) -> dict[str, NDArray[Any]]:
    return prepare_block(shape, block.what)

"""The index of sharded rows: each instance reports its files, and the head joins the reports.

The order of the matrix's rows is the natural order of all files' names over all instances, as if
every file lay in one folder. So an instance has several *runs* of consecutive rows; the rows
between them are on other instances.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raysm.core.protocol.names import natural
from raysm.errors import InstanceLost, InvalidInput
from raysm.features.similarity.cluster.arithmetic.tiling import RowRun
from raysm.features.similarity.cluster.reading.columns import Features
from raysm.features.similarity.cluster.reading.ids import word
from raysm.features.similarity.cluster.reading.matrix import Source
from raysm.instance.work.blocks import map_blocks
from raysm.instance.work.nodes import PlacedBlock


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
            low, high = max(start, run.offset), min(stop, run.offset + run.rows)
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
def naming_instance(source: Source) -> Iterator[None]:
    """Add the instance to errors of its files, because all instances have the same folders."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"on {source.here().host}: {error}") from error


# Not frozen, because the protocol ``Described`` has writable attributes.
@dataclass(kw_only=True, slots=True)
class ShardIndex:
    """All files of a sharded matrix, as the head knows them: a ``Described`` like ``Matrix``, but without the rows."""

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


def report(source: Source) -> ShardReport:
    """Report this instance's files; convert those that cannot be mapped as they are."""
    place = source.here()
    if not source.has_files():
        # If there are fewer files than instances, some get none. ``join`` raises an error if all
        # have none.
        return ShardReport(host=place.host, files=())
    with naming_instance(source):
        matrix = source.open()
    files = tuple(
        ShardFile(name=name, rows=rows, columns=matrix.columns, dtype=dtype, ids=matrix.ids)
        for name, rows, dtype in matrix.files
    )
    return ShardReport(
        host=place.host,
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
    with naming_instance(source):
        return source.features()


def join(reports: Sequence[ShardReport], hosts: Sequence[str], source: Source) -> ShardIndex:
    """Join the reports of all instances; ``hosts`` are the instances among which the service divided the files.

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
            f"{', '.join(missing)} did not report any files of the channel {channel!r}, which is sharded: its rows are "
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
                    f"{file.name} lies on {owner_of[file.name]} and on {one.host}: of a ShardedByS3Key channel each "
                    f"file lies on one instance; rename one of them, or make the channel {channel!r} FullyReplicated"
                )
            owner_of[file.name], files[file.name] = one.host, file
    names = sorted(files, key=natural)
    if not names:
        raise InvalidInput(
            f"the channel {channel!r} holds no files on any instance; put the rows of the matrix there"
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
                f"no instance has file {min(absent)} of {before}*-of-{count}{after} ({len(absent)} of {count} are "
                "missing); bring them, or rename the files if they are all there are"
            )
    first = files[names[0]]
    for name in names:
        if files[name].columns != first.columns:
            raise InvalidInput(
                f"{name} has {files[name].columns} columns, {first.name} has {first.columns}; all need the same columns"
            )
        if files[name].ids != first.ids:
            raise InvalidInput(
                f"the ids of {name} are {word(files[name].ids)}, those of {first.name} are {word(first.ids)}; write "
                "all files with one type (ids of a CSV are text)"
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
        # Leave out empty runs, at which the loop of ``portion`` would stop.
        elif count:
            own.append(RowRun(start, offset, count))
    return runs

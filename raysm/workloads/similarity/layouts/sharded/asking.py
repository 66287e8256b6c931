"""What the head knows of a matrix that is spread over the instances, and how it asks them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from raysm.contract.names import LABEL_HOST, natural
from raysm.errors import InstanceLost
from raysm.workloads.blocks import map_blocks
from raysm.workloads.nodes import answers
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.similarity.layouts.sharded.index import ShardIndex
from raysm.workloads.similarity.layouts.sharded.pair_task import portion
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk
from raysm.workloads.similarity.reading.digests import file_digests, joined
from raysm.workloads.similarity.reading.source import Source

__all__ = ["IdPiece", "SpreadMatrix", "asked", "chunk_of", "digest_of", "digests"]


@dataclass(frozen=True, slots=True)
class IdPiece(PlacedBlock):
    """A piece of the id column of one file: a row group of its instance's own file of ids."""

    host: str
    """The instance that has it."""
    name: str
    """The file of the matrix."""
    group: int
    """Which of its pieces."""

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"piece {self.group} of the ids of {self.name}, on {self.host}"


def asked(host: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on one instance, beside what computes there; return the object of Ray that its value becomes.

    Ray calls it again, there, where the value is lost.
    """
    # Without a CPU: it would wait behind the tasks that compute, whose next ones wait for the rows that it brings.
    task = ray.remote(num_cpus=0, max_retries=3)(function)
    return task.options(name=f"{function.__name__} on {host}", label_selector={LABEL_HOST: host}).remote(*arguments)


def chunk_of(source: Source, chunk: RowChunk, dtype: np.dtype[Any]) -> Any:
    """Begin to bring a chunk's rows under way; each time they become an object of Ray of their own."""
    return asked(chunk.host, portion, source, chunk, dtype)


def digest_of(index: ShardIndex, waiting: list[Any]) -> str:
    """Return the matrix's digest, that of the same files in one folder, from the answers to ``digests``.

    Raises:
        InstanceLost: An instance that has files has not answered.
    """
    # By name, whoever has the file: the digest must not depend on how the service shared files out.
    sums = dict(pair for answer in answers(waiting) for pair in answer)
    if silent := {host for name, host in zip(index.names, index.hosts, strict=True) if name not in sums}:
        raise InstanceLost(
            f"{', '.join(sorted(silent, key=natural))} went away while its files were digested; start the job again, "
            "with all its instances"
        )
    return joined([(name, sums[name]) for name in index.names])


def digests(source: Source) -> list[tuple[str, str]]:
    """Return (name, SHA-256) of the files of this instance; none where it has none."""
    # ``file_digests`` refuses a channel that holds nothing; here that is a share, as others are.
    return file_digests(source.here().channel) if source.has_files() else []


class SpreadMatrix:
    """Read like a ``Matrix`` by whoever needs its shape, names and ids, but not its rows.

    Attributes:
        rows: Number of rows, N.
        columns: Number of columns, D.
        dtype: The type that the rows are read as.
        sparse: Whether all of it is CSR.
        elements: How many are stored.
        names: The files, in order.
        ids: Type of the ids, None where no id column was named; they lie on the instances.
        id_bytes: Size of all ids.
    """

    def __init__(self, index: ShardIndex, source: Source, dtype: np.dtype[Any] | None = None) -> None:
        """Describe what the instances reported, read as ``dtype``; None is the files' own type."""
        self.rows, self.columns, self.sparse = index.rows, index.columns, index.sparse
        self.dtype = index.dtype if dtype is None else dtype
        self.elements = index.elements
        self.names = list(index.names)
        self.ids, self.id_bytes = index.ids, index.id_bytes
        self._index, self._source = index, source

    @property
    def id_pieces(self) -> list[IdPiece]:
        """The pieces of the id column, in the order of the rows."""
        files = zip(self._index.names, self._index.hosts, self._index.id_groups, strict=True)
        return [IdPiece(host, name, group) for name, host, groups in files for group in range(groups)]

    def id_batches(self) -> Iterator[pa.Array]:
        """Yield the ids in the order of the rows.

        Raises:
            InstanceLost: An instance that has some went away for good.
        """
        # In any order: whoever asks for ids holds all of them anyhow.
        ids = dict(map_blocks(partial(_ids, self._source), self.id_pieces, num_cpus=0))
        yield from (ids[piece] for piece in self.id_pieces)


def _ids(source: Source, piece: IdPiece) -> pa.Array:
    own = source.open()
    with pq.ParquetFile(own.id_files[own.names.index(piece.name)]) as file:
        return file.read_row_group(piece.group).column(0).combine_chunks()

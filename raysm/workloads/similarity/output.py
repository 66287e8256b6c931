"""The files of the result, written from recorded parts in bounded memory.

``neighbors.parquet`` has one row for each row of the matrix: ``row`` (and ``id``), ``neighbors`` and
``similarities``, a fixed-size list of k each, the best first. ``pairs.parquet`` has ``row``, ``neighbor``,
``similarity``, sorted by row and neighbor. Row groups have sizes that depend on the request alone, so that the bytes
do not depend on blocks or instances.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.workloads.blocks import TileBlock
from raysm.workloads.gather import regroup
from raysm.workloads.parquet import Column, write_parquet
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.keys import decode
from raysm.workloads.similarity.matrix import Described, read_ids
from raysm.workloads.similarity.parts import Part

__all__ = [
    "IDS",
    "NEIGHBORS",
    "PAIRS",
    "SIMILARITY",
    "write_ids",
    "write_neighbors",
    "write_pair_chunks",
    "write_pairs",
]

NEIGHBORS = "neighbors.parquet"
PAIRS = "pairs.parquet"
SIMILARITY = "similarity.npy"
IDS = "ids.parquet"

GROUP_BYTES = 16 << 20
"""Largest row group of ``neighbors.parquet``; as many are held as a ``Stream`` takes."""

PAIRS_GROUP = 1 << 20
"""Pairs of one row group."""

STEP_KEYS = 1 << 15
"""Keys that are decoded at a time: they, and what is made of them, stay in a core's cache."""

Parts = BlockRecord[Part]

PairChunk: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Rows, neighbors and similarities of consecutive pairs."""


def write_neighbors(
    folder: Path,
    keys: Callable[[int, int], NDArray[np.uint64]],
    k: int,
    matrix: Described,
    on_rows: Callable[[int], None],
) -> ResultFile:
    """Write ``neighbors.parquet``.

    Args:
        folder: Where to.
        keys: Returns keys[stop - start, k] of rows start to stop of ``matrix``, each row's best first.
        k: How many.
        matrix: Whose rows have the neighbors, and whose ids stand beside them.
        on_rows: Told how many more rows are written.
    """
    size = max(1, min(1 << 20, GROUP_BYTES // (12 * k + 8)))
    ids = read_ids(matrix, size) if matrix.id_files else None
    fields = [pa.field("row", pa.int64(), nullable=False)]
    if ids is not None:
        fields.append(pa.field("id", _id_type(matrix), nullable=False))
    fields.append(pa.field("neighbors", pa.list_(pa.field("item", pa.int64(), nullable=False), k), nullable=False))
    fields.append(pa.field("similarities", pa.list_(pa.field("item", pa.float32(), nullable=False), k), nullable=False))

    def groups() -> Iterator[list[Column]]:
        for start in range(0, matrix.rows, size):
            stop = min(start + size, matrix.rows)
            named = [] if ids is None else [next(ids)]
            yield [_numbers(start, stop), *named, *_decoded(keys, start, stop, k)]
            on_rows(stop - start)

    return write_parquet(folder / NEIGHBORS, pa.schema(fields), groups(), k)


def _decoded(
    keys: Callable[[int, int], NDArray[np.uint64]], start: int, stop: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return neighbors[n, k] and scores[n, k], made in steps that stay in the cache."""
    neighbors, scores = np.empty((stop - start, k), dtype=np.int64), np.empty((stop - start, k), dtype=np.float32)
    step = max(1, STEP_KEYS // k)
    for at in range(start, stop, step):
        some = slice(at - start, min(at + step, stop) - start)
        scores[some], neighbors[some] = decode(keys(at, min(at + step, stop)))
    return neighbors, scores


def _numbers(start: int, stop: int) -> pa.Array:
    return _array(np.arange(start, stop))


def _array(values: NDArray[Any]) -> pa.Array:
    """Return numbers as an Arrow array: ``pa.array`` would first import pandas where it is installed."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _id_type(matrix: Described) -> pa.DataType:
    return next(read_ids(matrix, 1)).type


def write_ids(folder: Path, matrix: Described) -> ResultFile:
    """Write ``ids.parquet``, row and id, for results that name rows by number alone."""
    schema = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field("id", _id_type(matrix), nullable=False)])

    def groups() -> Iterator[list[Column]]:
        row = 0
        for ids in read_ids(matrix, PAIRS_GROUP):
            yield [_numbers(row, row + len(ids)), ids]
            row += len(ids)

    return write_parquet(folder / IDS, schema, groups())


def write_pairs(
    folder: Path, parts: Parts, stripes: Sequence[Sequence[TileBlock]], on_rows: Callable[[int], None]
) -> ResultFile:
    """Write ``pairs.parquet`` from the threshold parts of ``stripes``: tiles of the same rows, columns rising."""

    def chunks() -> Iterator[PairChunk]:
        for stripe in stripes:
            yield from _stripe_pairs(parts, stripe)
            on_rows(stripe[0].rows.rows)

    return write_pair_chunks(folder, chunks())


def write_pair_chunks(folder: Path, chunks: Iterable[PairChunk]) -> ResultFile:
    """Write ``pairs.parquet`` from pairs that come sorted by row and neighbor."""
    schema = pa.schema(
        [
            pa.field("row", pa.int64(), nullable=False),
            pa.field("neighbor", pa.int64(), nullable=False),
            pa.field("similarity", pa.float32(), nullable=False),
        ]
    )
    groups = ([_array(row), neighbor, similarity] for row, neighbor, similarity in regroup(chunks, PAIRS_GROUP))
    return write_parquet(folder / PAIRS, schema, groups)


def _stripe_pairs(parts: Parts, stripe: Sequence[TileBlock]) -> Iterator[PairChunk]:
    """Merge the pairs of one stripe, about ``PAIRS_GROUP`` at a time; a row's pairs lie in several tiles.

    One part is open at a time, and only the pairs that are merged are copied out of it: a stripe of a large matrix
    has more parts than a process may have open files.
    """
    first_row = stripe[0].rows.start
    offsets = np.stack([parts.load(tile, mapped_bytes=0).arrays["offsets"].copy() for tile in stripe])
    before = offsets.sum(axis=0)
    rows = len(before) - 1
    start = 0
    while start < rows:
        stop = max(start + 1, int(np.searchsorted(before, before[start] + PAIRS_GROUP, side="right")) - 1)
        stop = min(stop, rows)
        numbers = np.arange(start, stop) + first_row
        row = np.concatenate([np.repeat(numbers, np.diff(own[start : stop + 1])) for own in offsets])
        spans = [(tile, int(own[start]), int(own[stop])) for tile, own in zip(stripe, offsets, strict=True)]
        found = [_pairs_of(parts, tile, begin, end) for tile, begin, end in spans if begin < end]
        # Tiles come with rising columns, so a stable sort by row leaves each row's neighbors in order.
        if found:
            order = np.argsort(row, kind="stable")
            neighbor, similarity = (np.concatenate(columns) for columns in zip(*found, strict=True))
            yield row[order], neighbor[order].astype(np.int64), similarity[order]
        start = stop


def _pairs_of(parts: Parts, tile: TileBlock, begin: int, end: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    arrays = parts.load(tile, mapped_bytes=0).arrays
    return arrays["neighbors"][begin:end].copy(), arrays["similarities"][begin:end].copy()

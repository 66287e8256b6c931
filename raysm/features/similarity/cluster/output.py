"""The files of the result, written in bounded memory.

``neighbors.parquet`` has one row for each row of the matrix: ``row``, ``neighbors`` and
``similarities``, a fixed-size list of k each, the best first. ``pairs.parquet`` has ``row``,
``neighbor``, ``similarity``, sorted by row and neighbor. If a column names the rows, ``id`` stands
beside ``row``, and ``neighbor_ids`` (``neighbor_id`` in pairs) beside the neighbors. The full
matrix has no columns for ids, so they are in files of their own. The sizes of row groups depend
only on the request and the rows, so that the bytes do not depend on blocks or instances.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.core.protocol.result import ResultFile
from raysm.features.similarity.cluster.arithmetic.keys import decode
from raysm.features.similarity.cluster.reading.columns import Ids, as_array, take_ids
from raysm.instance.work.gather import regroup
from raysm.instance.work.parquet import write_parquet
from raysm.instance.work.row_blocks import RowBlock

NEIGHBORS, PAIRS, SIMILARITY = "neighbors", "pairs", "similarity"
"""Names of the result: of its one file, without a suffix, or of the folder of its parts."""

GROUP_BYTES = 16 << 20
"""Size of a row group of ``neighbors.parquet``, if ids are as long as their mean."""

PAIRS_GROUP = 1 << 20
"""Pairs of one row group; pairs with ids are fewer, and take_ids as many bytes."""

PAIR_BYTES = 20
STEP_KEYS = 1 << 15
"""Keys that are decoded at a time: they and the decoded values stay in a core's cache."""

PairChunk: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Rows, neighbors and similarities of consecutive pairs."""


def write_neighbors(
    path: Path,
    rows: RowBlock,
    keys: Callable[[int, int], NDArray[np.uint64]],
    k: int,
    on_rows: Callable[[int], None] = lambda rows: None,
    ids: Ids | None = None,
) -> ResultFile:
    """Write the neighbors of some rows; ``keys`` returns keys[stop - start, k] of rows start to stop, the best first.

    It calls ``on_rows`` with the number of further rows that are written.
    """
    # An int64 and a float32 for each neighbor, and the row's own number.
    row_bytes = 12 * k + 8 + (0 if ids is None else ids.row_bytes + k * ids.neighbor_bytes)
    size = max(1, min(1 << 20, int(GROUP_BYTES / row_bytes)))
    named = (
        {} if ids is None else {"id": ids.rows.type, "neighbor_ids": _list(ids.neighbors.type, k)}
    )
    schema = _schema(
        ("row", "id", "neighbors", "neighbor_ids", "similarities"),
        {
            "row": pa.int64(),
            "neighbors": _list(pa.int64(), k),
            "similarities": _list(pa.float32(), k),
        }
        | named,
    )

    def groups() -> Iterator[list[pa.Array]]:
        for start in range(rows.start, rows.stop, size):
            stop = min(start + size, rows.stop)
            neighbors, similarities = _decoded(keys, start, stop, k)
            columns = {
                "row": as_array(np.arange(start, stop)),
                "neighbors": _lists(as_array(neighbors), schema, "neighbors"),
                "similarities": _lists(as_array(similarities), schema, "similarities"),
            }
            if ids is not None:
                columns["id"] = ids.rows.slice(start, stop - start)
                columns["neighbor_ids"] = _lists(
                    take_ids(ids.neighbors, neighbors), schema, "neighbor_ids"
                )
            yield [columns[name] for name in schema.names]
            # The writer asks for the next group once this one has left for the disk.
            on_rows(stop - start)

    return write_parquet(
        path,
        schema,
        groups(),
        inner=(k,),
        units=("rows", "neighbors"),
        statistics=_searched_columns(schema),
    )


def _decoded(
    keys: Callable[[int, int], NDArray[np.uint64]], start: int, stop: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return neighbors[n * k] and scores[n * k], made in steps that stay in the cache."""
    neighbors, scores = (
        np.empty((stop - start, k), dtype=np.int64),
        np.empty((stop - start, k), dtype=np.float32),
    )
    step = max(1, STEP_KEYS // k)
    for at in range(start, stop, step):
        some = slice(at - start, min(at + step, stop) - start)
        scores[some], neighbors[some] = decode(keys(at, min(at + step, stop)))
    return neighbors.ravel(), scores.ravel()


def _schema(order: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Schema:
    # No value is ever missing, and for required columns Parquet stores no definition levels.
    return pa.schema(
        [pa.field(name, types[name], nullable=False) for name in order if name in types]
    )


def _list(kind: pa.DataType, k: int) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False), k)


def _lists(values: pa.Array, schema: pa.Schema, name: str) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values, type=schema.field(name).type)


def _searched_columns(schema: pa.Schema) -> list[str]:
    """Return the columns by which a reader looks for rows; statistics of the others would exclude no row group."""
    return [name for name in ("row", "id") if name in schema.names]


def write_ids(path: Path, ids: pa.Array) -> ResultFile:
    """Write row and id into a file of their own, for the full matrix, which names its rows by number alone."""
    schema = _schema(("row", "id"), {"row": pa.int64(), "id": ids.type})
    groups = (
        [
            as_array(np.arange(start, min(start + PAIRS_GROUP, len(ids)))),
            ids.slice(start, PAIRS_GROUP),
        ]
        for start in range(0, len(ids), PAIRS_GROUP)
    )
    return write_parquet(path, schema, groups, statistics=_searched_columns(schema))


def pair_bytes(ids: Ids | None) -> float:
    return PAIR_BYTES if ids is None else PAIR_BYTES + ids.row_bytes + ids.neighbor_bytes


def write_pairs(path: Path, chunks: Iterable[PairChunk], ids: Ids | None = None) -> ResultFile:
    named = {} if ids is None else {"id": ids.rows.type, "neighbor_id": ids.neighbors.type}
    schema = _schema(
        ("row", "id", "neighbor", "neighbor_id", "similarity"),
        {"row": pa.int64(), "neighbor": pa.int64(), "similarity": pa.float32()} | named,
    )
    size = max(1, int(PAIRS_GROUP * PAIR_BYTES / pair_bytes(ids)))

    def groups() -> Iterator[list[pa.Array]]:
        # Cut again into equal groups: the chunks keep a row's pairs together, and so differ in
        # length.
        for rows, neighbors, similarities in regroup(chunks, size):
            columns = {
                "row": as_array(rows),
                "neighbor": as_array(neighbors),
                "similarity": as_array(similarities),
            }
            if ids is not None:
                columns |= {
                    "id": take_ids(ids.rows, rows),
                    "neighbor_id": take_ids(ids.neighbors, neighbors),
                }
            yield [columns[name] for name in schema.names]

    return write_parquet(
        path, schema, groups(), units=("pairs",), statistics=_searched_columns(schema)
    )

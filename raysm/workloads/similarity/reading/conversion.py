"""Files that cannot be mapped as they are, converted to arrays in a scratch folder of the instance, once.

Tables and compressed archives become ``.npy``, CSR matrices their three arrays. All processes of the instance use the
same converted files.
"""

import errno
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.errors import InvalidInput, NoRoom
from raysm.workloads.similarity.reading import tables
from raysm.workloads.similarity.reading.arrays import RowWriter, Unmappable, extract_archive, map_array, write_array
from raysm.workloads.similarity.reading.columns import Features, Selection
from raysm.workloads.similarity.reading.files import refuse_names, suffix, table

__all__ = ["DATA", "IDS", "ID_ROWS", "INDICES", "INDPTR", "MapArray", "ROWS", "SHAPE", "converted"]

CHUNK_BYTES = 16 << 20

MapArray: TypeAlias = Callable[[Path], NDArray[Any]]
"""``map_array``, or what refuses as some file systems do."""

ID_ROWS = 1 << 17
"""Ids of one batch, and of one row group of the files that keep them."""

ROWS, IDS, DATA, INDICES, INDPTR, SHAPE = (
    "rows.npy",
    "ids.parquet",
    "data.npy",
    "indices.npy",
    "indptr.npy",
    "shape.npy",
)
"""The files of a converted one: its rows, or the three arrays of CSR with their shape; and the ids where it has any."""


def converted(
    file: Path, scratch: Path, selection: Selection, expected: Features | None = None, mapped: MapArray = map_array
) -> Path:
    """Return the folder with the file's arrays, made now unless it is there.

    Several tasks of an instance may do so at the same time: each writes beside, the first renames.

    Args:
        file: Of the channel.
        scratch: Folder of what was converted.
        selection: The user's choice of columns.
        expected: Features in the order in which the rows have them; None is the file's own order.
        mapped: Maps a file of the channel.
    """
    stat = file.resolve().stat()
    # A file that changed is another one: what was made of it before is not taken for it.
    chosen = [selection.ids, selection.columns, selection.exclude, expected and expected.names]
    identity = json.dumps([str(file), stat.st_size, stat.st_mtime_ns, chosen])
    folder = scratch / hashlib.sha256(identity.encode()).hexdigest()[:32]
    if folder.exists():
        return folder
    scratch.mkdir(parents=True, exist_ok=True)
    # In the same folder: no rename leads from one file system to another.
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=scratch))
    try:
        _convert(file, beside, selection, expected, mapped)
        beside.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(f"the disk of {scratch} became full while {file.name} was converted to rows") from error
        # Where it is there, another task was first.
        if not folder.exists():
            raise
    finally:
        # Where all went well it has another name by now.
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path, selection: Selection, expected: Features | None, mapped: MapArray) -> None:
    kind = suffix(file)
    if kind == ".npy":
        _bring(file, folder / ROWS, mapped)
        return
    if kind == ".npz":
        refuse_names(file, selection)
        extract_archive(file, folder)
        for name in (ROWS, DATA, INDICES, INDPTR):
            if (folder / name).exists():
                _straighten_in_place(folder / name, 2 if name == ROWS else 1)
        return
    described = table(file, selection)
    assert described is not None, kind
    read = tables.read_parquet if kind == ".parquet" else tables.read_csv
    _write_table(file, described, read(file, selection, expected), folder)


def _bring(file: Path, target: Path, mapped: MapArray) -> None:
    try:
        _straighten(mapped(file), target)
    except Unmappable:
        shutil.copyfile(file, target)
        _straighten_in_place(target, 2)


def _straighten_in_place(path: Path, dimensions: int) -> None:
    array = map_array(path, dimensions)
    if array.flags.c_contiguous and array.dtype.isnative:
        return
    # Beside it: the array is mapped from this file while it is written.
    straight = path.with_suffix(".straight")
    _straighten(array, straight)
    straight.replace(path)


def _straighten(array: NDArray[Any], target: Path) -> None:
    """Write a Fortran-ordered or byte-swapped array in C order."""
    write_array(target, array, max(1, CHUNK_BYTES * len(array) // max(1, array.nbytes)))


def _write_table(file: Path, table: tables.Table, batches: Iterator[tables.Batch], folder: Path) -> None:
    # A table without rows is no fault where others have some: engines that write in parts leave empty ones.
    first = next(batches, None)
    columns, dtype = (table.columns, table.dtype) if first is None else (first.rows.shape[1], first.rows.dtype)
    if columns is None:
        raise InvalidInput(
            f"{file.name} has no rows, and so no list tells the number of columns; remove it from the input"
        )
    ids = None if table.ids is None else _id_writer(folder / IDS, table.ids)
    try:
        with RowWriter(folder / ROWS, columns, dtype) as writer:
            for batch in itertools.chain([] if first is None else [first], batches):
                writer.write(batch.rows)
                if ids is not None:
                    # By batches, which Arrow joins to row groups; by tables each would be one, of a few thousand rows.
                    ids.write_batch(pa.record_batch([batch.ids], schema=ids.schema), ID_ROWS)
    finally:
        if ids is not None:
            ids.close()


def _id_writer(path: Path, kind: pa.DataType) -> pq.ParquetWriter:
    # Without a dictionary its size is that of the values.
    return pq.ParquetWriter(path, pa.schema([("id", kind)]), use_dictionary=False)

"""The files of a channel, and what their headers tell, before any row is read.

A folder's files are one matrix in the natural order of their names (``part-2`` before ``part-10``), the same on every
instance. What flows in is a path, what flows out are names, a shape, or what is wrong with them.
"""

from pathlib import Path

import pyarrow as pa

from raysm.contract.folders import files_below
from raysm.contract.natural_order import natural
from raysm.errors import InvalidInput
from raysm.workloads.file_names import is_hidden
from raysm.workloads.similarity.reading import archives, tables
from raysm.workloads.similarity.reading.ids import word
from raysm.workloads.similarity.reading.npy import read_layout

__all__ = ["check_ids", "matrix_files", "peek", "refuse_ids", "suffix"]


def suffix(path: Path) -> str | None:
    """Return which kind of file it is by its name; None: none that holds rows."""
    # By the whole name: the suffix of .csv.gz is .gz to pathlib, and Windows writes .CSV.
    name = path.name.lower()
    return next((s for s in (".npy", ".npz", ".csv", ".csv.gz", ".parquet") if name.endswith(s)), None)


def matrix_files(path: Path) -> list[tuple[str, Path]]:
    """List a channel's files as (name, path), in natural order; names that begin with ``.`` or ``_`` are passed over.

    Raises:
        InvalidInput: There is none, or one of them has no known suffix.
    """
    if not path.exists():
        raise InvalidInput(f"{path} is not there; give a file, or a folder of files, with the rows of the matrix")
    if path.is_file():
        files = [(path.name, path)]
    else:
        names = [(file.relative_to(path).as_posix(), file) for file in files_below(path)]
        shown = [(name, file) for name, file in names if not is_hidden(name)]
        files = sorted(shown, key=lambda item: natural(item[0]))
    if not files:
        raise InvalidInput(f"the folder {path} holds no files; put the rows of the matrix there")
    for name, file in files:
        if suffix(file) is None:
            raise InvalidInput(f"{name} is no matrix file: .npy, .npz, .csv, .csv.gz and .parquet are; take it away")
        if file.stat().st_size == 0:
            raise InvalidInput(f"{name} is empty; write it again, or take it away")
    return files


def peek(path: Path, id_column: str | None = None) -> tuple[int | None, int | None]:
    """Return (rows, columns) from the files' headers alone; None for what only reading them all would tell.

    Raises:
        InvalidInput: A file is missing, empty, torn in its header or unsupported; the numbers of columns differ; or
            the id column is not there, names no rows, or is of different types.
    """
    rows: int | None = 0
    columns: int | None = None
    first = ""
    files = matrix_files(path)
    if id_column is not None:
        check_ids(files, id_column)
    for name, file in files:
        file_rows, file_columns = _peek_file(file, id_column)
        rows = None if rows is None or file_rows is None else rows + file_rows
        # None is a file of lists whose length only reading tells.
        if columns is not None and file_columns not in (None, columns):
            raise InvalidInput(f"{name} has {file_columns} columns, {first} has {columns}; one matrix has one width")
        if columns is None and file_columns is not None:
            first, columns = name, file_columns
    if rows == 0 or columns == 0:
        raise InvalidInput(f"{path.name} has the shape ({rows}, {columns}); there is nothing to compute")
    return rows, columns


def _peek_file(file: Path, id_column: str | None) -> tuple[int | None, int | None]:
    kind = suffix(file)
    if kind in (".npy", ".npz"):
        refuse_ids(file, id_column)
        shape = archives.shape(file) if kind == ".npz" else read_layout(file).shape
        # Of an archive: read_layout has refused others already.
        if len(shape) != 2:
            raise InvalidInput(f"{file.name} has the shape {shape}; expected 2 dimensions (rows, columns)")
        return shape[0], shape[1]
    if kind == ".parquet":
        table = tables.parquet_table(file, id_column)
    else:
        table = tables.csv_table(file, id_column)
    return table.rows, table.columns


def refuse_ids(file: Path, id_column: str | None) -> None:
    """Raise ``InvalidInput`` where a column of names is asked for of a file that has none."""
    if id_column is not None:
        raise InvalidInput(
            f"{file.name} has no columns with names, so no {id_column!r} that could name its rows; save it as CSV or "
            "Parquet, matrix and queries alike, or leave the ids away"
        )


def check_ids(files: list[tuple[str, Path]], id_column: str) -> None:
    """Compare the types of the id columns, by the files' beginnings alone: the ids are written when all is computed."""
    first: pa.DataType | None = None
    for name, file in files:
        if suffix(file) in (".npy", ".npz"):
            refuse_ids(file, id_column)
        reading = tables.parquet_table if suffix(file) == ".parquet" else tables.csv_table
        kind = reading(file, id_column).ids
        if first is not None and kind != first:
            raise InvalidInput(
                f"the id column {id_column!r} of {name} is {word(kind)}, that of {files[0][0]} is {word(first)} "
                "(a CSV's is text); write all files with one type"
            )
        first = kind

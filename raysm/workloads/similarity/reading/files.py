"""The files of a channel, and what their headers say, before any row is read.

A folder's files are one matrix in the natural order of their names (``part-2`` before ``part-10``), the same on every
instance.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from raysm.contract.names import natural
from raysm.errors import InvalidInput, option
from raysm.workloads.file_names import data_files
from raysm.workloads.similarity.reading import tables
from raysm.workloads.similarity.reading.arrays import archive_shape, read_layout
from raysm.workloads.similarity.reading.columns import Features, Selection, agreed, listed
from raysm.workloads.similarity.reading.ids import word

__all__ = [
    "ARRAYS",
    "SUFFIXES",
    "Shape",
    "check_ids",
    "features",
    "matrix_files",
    "peek",
    "refuse_names",
    "suffix",
    "table",
]

SUFFIXES = (".npy", ".npz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
"""How the names of files end that can be read."""

ARRAYS = (".npy", ".npz")
"""Those whose columns have no names."""

NO_SELECTION = Selection()


def suffix(path: Path) -> str | None:
    """Return the one of ``SUFFIXES`` that a file has; None if it cannot be read."""
    # By the whole name: the suffix of .csv.gz is .gz to pathlib, and Windows writes .CSV.
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def matrix_files(path: Path) -> list[tuple[str, Path]]:
    """List a channel's files as (name, path), in natural order; names that begin with ``.`` or ``_`` are skipped.

    Raises:
        InvalidInput: There is none, or one of them is empty or cannot be read.
    """
    if not path.exists():
        raise InvalidInput(f"{path} does not exist; give a file, or a folder of files, with the rows of the matrix")
    files = sorted(data_files(path), key=lambda item: natural(item[0]))
    if not files:
        raise InvalidInput(f"the folder {path} holds no files; put the rows of the matrix there")
    for name, file in files:
        if suffix(file) is None:
            raise InvalidInput(
                f"{name} cannot be read as a matrix; supported are {', '.join(SUFFIXES)}: convert the file, or move it "
                "out of the input"
            )
        if file.stat().st_size == 0:
            raise InvalidInput(f"{name} is empty (0 bytes); write it again, or remove it from the input")
    return files


def table(file: Path, selection: Selection = NO_SELECTION) -> tables.Table | None:
    """Return what the beginning of a table says; None for an array, whose columns have no names.

    Raises:
        InvalidInput: It cannot be read, or ``selection`` names columns of an array.
    """
    kind = suffix(file)
    if kind in ARRAYS:
        refuse_names(file, selection)
        return None
    return tables.parquet_table(file, selection) if kind == ".parquet" else tables.csv_table(file, selection)


def features(files: list[tuple[str, Path]], selection: Selection = NO_SELECTION) -> Features | None:
    """Return the features of the first file with named features, else of the first with a list column, else None."""
    a_list = None
    for name, file in files:
        found = None if suffix(file) in ARRAYS else table(file, selection)
        if found is not None and found.features is not None:
            named = replace(found.features, file=name)
            if not named.is_one_list:
                return named
            a_list = a_list or named
    return a_list


class Shape(NamedTuple):
    """What the headers of a matrix say."""

    rows: int | None
    """Number of rows; None if only reading all files tells."""
    columns: int | None
    """Number of columns; None if only reading tells."""
    features: Features | None
    """The features that all files have."""


def peek(path: Path, selection: Selection = NO_SELECTION, expected: Features | None = None) -> Shape:
    """Return what the files' headers say.

    Args:
        path: A file, or a folder of files.
        selection: The user's choice of columns.
        expected: Features of the matrix that these rows are compared with.

    Raises:
        InvalidInput: A file is missing, empty, truncated in its header or unsupported; the files have other columns
            than the first, or than ``expected``; or an id column is missing, names no rows, or has several types.
    """
    rows: int | None = 0
    columns: int | None = None
    first = ""
    files = matrix_files(path)
    check_ids(files, selection)
    expected = agreed([features(files, selection)], expected)
    for name, file in files:
        found = table(file, selection)
        if found is not None:
            found.ordered(expected)
        file_rows, file_columns = _array_shape(file) if found is None else (found.rows, found.columns)
        rows = None if rows is None or file_rows is None else rows + file_rows
        # Only reading tells the length of some lists.
        if columns is not None and file_columns not in (None, columns):
            raise InvalidInput(
                f"{name} has {file_columns} columns, {first} has {columns}; all files of a matrix need the same columns"
            )
        if columns is None and file_columns is not None:
            first, columns = name, file_columns
    if rows == 0 or columns == 0:
        raise InvalidInput(f"{path.name} has the shape ({rows}, {columns}); there is nothing to compute")
    return Shape(rows, columns, expected)


def _array_shape(file: Path) -> tuple[int, int]:
    shape = archive_shape(file) if suffix(file) == ".npz" else read_layout(file).shape
    # Only of an archive: read_layout has refused others.
    if len(shape) != 2:
        raise InvalidInput(f"{file.name} has the shape {shape}; expected 2 dimensions (rows, columns)")
    return shape[0], shape[1]


def refuse_names(file: Path, selection: Selection) -> None:
    """Raise ``InvalidInput`` if columns of an array are chosen by name."""
    if selection.named:
        name = selection.named[0]
        raise InvalidInput(
            f"the columns of {file.name} have no names, so there is no column {name!r}; save the rows as CSV or "
            f"Parquet (matrix and queries), or drop {option(selection.option, name)}"
        )


def check_ids(files: list[tuple[str, Path]], selection: Selection) -> None:
    """Compare the types of the id columns by the files' beginnings: the ids are only written once all is computed.

    Raises:
        InvalidInput: Two files have ids of different types, or an id column is missing.
    """
    if not selection.ids:
        return
    first: pa.DataType | None = None
    for name, file in files:
        found = table(file, selection)
        kind = None if found is None else found.ids
        if first is not None and kind != first:
            raise InvalidInput(
                f"the ids ({listed(selection.ids)}) of {name} are {word(kind)}, those of {files[0][0]} are "
                f"{word(first)}; write all files with one type (ids of a CSV are text)"
            )
        first = kind

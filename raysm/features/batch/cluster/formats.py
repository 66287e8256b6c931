"""File formats: recognise them by the names of files; the interface of their readers.

Cuts depend on the files and the request alone, never on the cluster, so that parts of the result,
and the batches that a predictor sees, are the same on any number of instances. This module imports
neither NumPy nor Arrow, because a client that sends a job may have neither.
"""

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from raysm.errors import InvalidInput, MissingDependency
from raysm.features.batch.request import BatchInference
from raysm.instance.work.file_names import data_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from raysm.features.batch.cluster.columns import InputColumns


Columns: TypeAlias = "Mapping[str, NDArray[Any]]"
"""Records by column: arrays of equal length, numbers as numbers, all else as objects."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    files: tuple[str, ...]
    start: int = 0
    """First position in the file, in the unit of the format: bytes, rows or row groups."""
    stop: int | None = None
    first_row: int = 0
    """Number of its first record in the file."""
    rows: int | None = None


class Format(Protocol):
    keys: tuple[str, ...]
    """The columns that name a record; they stand in the result beside the predictions."""

    def split(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """Cut files into spans of about this many records, in the order of the input."""
        ...

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        """Yield the records of a span with the columns ``keys``, ``batch_size`` at a time.

        The last batch may have fewer.
        """
        ...


def group_files(files: Sequence[str], rows: int) -> list[Span]:
    starts = range(0, len(files), rows)
    return [
        Span(files=tuple(files[start : start + rows]), rows=len(files[start : start + rows]))
        for start in starts
    ]


FORMATS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "images": (
        "raysm.features.batch.cluster.files:Images",
        (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    ),
    "text": ("raysm.features.batch.cluster.files:Text", (".txt", ".txt.gz")),
    "csv": ("raysm.features.batch.cluster.tables:Csv", (".csv", ".csv.gz", ".tsv", ".tsv.gz")),
    "jsonl": ("raysm.features.batch.cluster.tables:JsonLines", (".jsonl", ".jsonl.gz", ".ndjson")),
    "parquet": ("raysm.features.batch.cluster.tables:Parquet", (".parquet",)),
    "npy": ("raysm.features.batch.cluster.files:Npy", (".npy",)),
    "files": ("raysm.features.batch.cluster.files:WholeFiles", ()),
}
"""The class of each format, and the suffixes of its files."""


def make_reader(name: str, columns: "InputColumns | None" = None) -> "Format":
    """Return the reader of a format; a table's needs ``columns``, the columns of all files."""
    try:
        kind = pkgutil.resolve_name(FORMATS[name][0])
    except ImportError as error:
        raise MissingDependency(
            f"reading {name} needs the module {error.name}; add its package to the requirements "
            "(for images: pillow)"
        ) from error
    format_: Format = kind() if columns is None else kind(columns)
    return format_


def infer_format(files: Sequence[str], channel: str) -> str:
    formats: dict[str | None, str] = {}
    for file in reversed(files):
        name = PurePath(file).name.lower()
        formats[
            next((kind for kind, (_, suffixes) in FORMATS.items() if name.endswith(suffixes)), None)
        ] = file
    if len(formats) > 1 or None in formats:
        endings = ", ".join(suffix for _, suffixes in FORMATS.values() for suffix in suffixes)
        examples = " and ".join(sorted(formats.values())[:2])
        known = next((file for kind, file in formats.items() if kind is not None), None)
        one = (
            f"; or give one of them as the input: job.output('model/{known}') of a result"
            if known
            else ""
        )
        if set(formats.values()) == {"result.pkl"}:
            raise InvalidInput(
                f"the channel {channel!r} has only result.pkl, the value of a function: let that "
                "function write files to $SM_MODEL_DIR"
            )
        raise InvalidInput(
            f"the files of the channel {channel!r} are not all of one known format ({endings}): "
            f"{examples}. Say how to read them, raysm.Batch(..., read='text'), or read='files' for "
            f"their bytes{one}"
        )
    return next(name for name in formats if name is not None)


def check_inputs(workload: BatchInference, inputs: Mapping[str, Path | None]) -> None:
    """Check the files of the channel to read.

    ``inputs`` has each channel's path, None if it is elsewhere.
    """
    channel = workload.channel_of(inputs)
    path = inputs[channel]
    if path is None:
        return
    names = [name for name, _ in data_files(path)]
    if not names:
        raise InvalidInput(
            f"{path}, the input {channel!r}, has no files; give a file, or a folder with files"
        )
    kind = infer_format(names, channel) if workload.read is None else workload.read
    if kind == "csv":
        from raysm.instance.work.table_files import (
            check_delimiter,  # it imports Arrow, which other formats do not need here
        )

        check_delimiter(path if path.is_file() else path / names[0])

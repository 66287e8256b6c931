"""How files become records: one module for each format, and one line here.

What flows in are the names of a channel's files, what flows out is the format that reads them. A format is imported
when it is used: the one of images needs Pillow, which the others can do without.
"""

import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from raysm.errors import InvalidInput, MissingDependency

# What reads a format needs NumPy; by which names it goes a client without may ask.
if TYPE_CHECKING:
    from raysm.workloads.batch.columns import InputColumns
    from raysm.workloads.batch.formats.format import Format

__all__ = ["FORMATS", "format_of", "named"]

FORMATS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "images": (
        "raysm.workloads.batch.formats.images:Images",
        (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    ),
    "text": ("raysm.workloads.batch.formats.text:Text", (".txt", ".txt.gz")),
    "csv": ("raysm.workloads.batch.formats.tables:Csv", (".csv", ".csv.gz", ".tsv", ".tsv.gz")),
    "jsonl": ("raysm.workloads.batch.formats.tables:JsonLines", (".jsonl", ".jsonl.gz", ".ndjson")),
    "parquet": ("raysm.workloads.batch.formats.tables:Parquet", (".parquet",)),
    "npy": ("raysm.workloads.batch.formats.arrays:Npy", (".npy",)),
    "files": ("raysm.workloads.batch.formats.whole_files:WholeFiles", ()),
}
"""The class of each format, and how the names of its files end."""


def named(name: str, columns: "InputColumns | None" = None) -> "Format":
    """Return a format by its name.

    Args:
        name: One of ``FORMATS``.
        columns: Of tables: the columns of all files, without which none can be read.

    Raises:
        MissingDependency: The image lacks what reads it.
    """
    try:
        kind = pkgutil.resolve_name(FORMATS[name][0])
    except ImportError as error:
        raise MissingDependency(
            f"reading {name} needs the module {error.name}, which the image lacks; add its package to the requirements "
            "(for images: pillow)"
        ) from error
    format_: Format = kind() if columns is None else kind(columns)
    return format_


def format_of(files: Sequence[str], channel: str) -> str:
    """Return which format the files of a channel have, by their names.

    Raises:
        InvalidInput: They have none that is known, or several.
    """
    formats = {_by_suffix(file): file for file in reversed(files)}
    if len(formats) > 1 or None in formats:
        endings = ", ".join(suffix for _, suffixes in FORMATS.values() for suffix in suffixes)
        examples = " and ".join(sorted(formats.values())[:2])
        known = next((file for kind, file in formats.items() if kind is not None), None)
        one = f"; or give one of them as the input: job.output('model/{known}') of a result" if known else ""
        raise InvalidInput(
            f"the files of the channel {channel!r} are not all of one known format ({endings}): {examples}. Say how to "
            f"read them, raysm.Batch(..., read='text'), or read='files' for their bytes{one}"
        )
    return next(name for name in formats if name is not None)


def _by_suffix(file: str) -> str | None:
    name = PurePath(file).name.lower()
    return next((kind for kind, (_, suffixes) in FORMATS.items() if name.endswith(suffixes or "\0")), None)

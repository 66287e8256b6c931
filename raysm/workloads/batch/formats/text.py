"""Text: a record is a line."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.format import Columns, Span, is_gzipped
from raysm.workloads.batch.formats.whole_files import objects

__all__ = ["Text"]

BUFFER_BYTES = 4 << 20


class Text:
    """Reads lines of UTF-8: columns ``file``, ``row`` and ``text``."""

    keys: tuple[str, ...] = ("file", "row")

    def cut(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """See ``Format``; a compressed file stays whole, for nobody can begin in its middle."""
        return [span for file in files for span in _cut(folder, file, rows)]

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        """See ``Format``."""
        (name,) = span.files
        row = span.first_row
        for some in _lines(folder / name, span, batch_size):
            try:
                texts = [line.rstrip(b"\r\n").decode() for line in some]
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"{folder / name}: a line of rows {row} to {row + len(some) - 1} is not UTF-8 ({error}); "
                    "convert the file, or read='files'"
                ) from error
            numbers = np.arange(row, row + len(some))
            yield {"file": objects([name] * len(some)), "row": numbers, "text": objects(texts)}
            row += len(some)


def _lines(path: Path, span: Span, count: int) -> Iterator[list[bytes]]:
    """Yield a span's lines, so many at a time."""
    try:
        with _opened(path) as file:
            if span.start:
                file.seek(span.start)
            lines = islice(file, span.rows)
            while some := list(islice(lines, count)):
                yield some
    # Of a file that is torn, is none, or is damaged; what the disk says may be gone at the next attempt.
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _cut(folder: Path, name: str, rows: int) -> list[Span]:
    if is_gzipped(name):
        return [Span(files=(name,))]
    # Where each span begins, in bytes: a line is as long as it is, so all before it have to be read once.
    spans, begin, first = [], 0, 0
    with (folder / name).open("rb", buffering=BUFFER_BYTES) as file:
        while count := sum(1 for _ in islice(file, rows)):
            # tell() would cost a call for each line: only here is the position asked for.
            stop = file.tell()
            spans.append(Span(files=(name,), start=begin, stop=stop, first_row=first, rows=count))
            begin, first = stop, first + count
    return spans


def _opened(path: Path) -> Any:
    return gzip.open(path) if is_gzipped(path.name) else path.open("rb", buffering=BUFFER_BYTES)

"""Formats of plain files: whole files, images, lines of text, and NumPy arrays."""

import codecs
import gzip
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.features.batch.cluster.formats import Columns, Span, group_files
from raysm.instance.work.file_names import is_gzipped

BUFFER_BYTES = 4 << 20


def objects(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return values as an array of objects.

    NumPy would turn equal lists into a matrix and pad texts.
    """
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class WholeFiles:
    keys: tuple[str, ...] = ("file",)
    column = "bytes"

    def split(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        return group_files(files, rows)

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
            for start in range(0, len(span.files), batch_size):
                files = span.files[start : start + batch_size]
                values = list(pool.map(self._decode_file, [folder / file for file in files]))
                yield {"file": objects(files), self.column: self.join(values)}

    def decode(self, path: Path) -> Any:
        return path.read_bytes()

    def join(self, values: list[Any]) -> np.ndarray[Any, Any]:
        return objects(values)

    def _decode_file(self, path: Path) -> Any:
        try:
            return self.decode(path)
        except MemoryError:
            raise
        # Every other exception, because Pillow raises SyntaxError for a broken PNG, and others for
        # other formats.
        except Exception as error:
            raise InvalidInput(
                f"{path} cannot be read: {error}; remove it, or repair it"
            ) from error


class Images(WholeFiles):
    """Reads images: columns ``file`` and ``image``.

    A colour image is uint8[height, width, 3]. A grey one is [height, width] of uint8, or of the
    file's uint16, int32 or float32 if it has more than eight bits. Images of one size and type are
    one array[n, height, width, …], others an array of n arrays.
    """

    column = "image"

    def __init__(self) -> None:
        # Imported here, because the other formats do without Pillow.
        from PIL import Image

        self._open = Image.open

    def decode(self, path: Path) -> Any:
        with self._open(path) as image:
            # Keep more than eight bits (I, I;16, F): Pillow would turn all values above 255 into
            # white.
            if image.mode.startswith(("I", "F")):
                pixels = np.asarray(image)
                return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
            # Palettes, alpha and the like become the visible colours; 1 and L stay grey.
            return np.asarray(
                image.convert("L") if image.mode in ("1", "L") else image.convert("RGB")
            )

    def join(self, values: list[Any]) -> np.ndarray[Any, Any]:
        return (
            np.stack(values)
            if len({(value.shape, value.dtype) for value in values}) == 1
            else objects(values)
        )


class Text:
    keys: tuple[str, ...] = ("file", "row")

    def split(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """Cut files at the beginnings of lines.

        A compressed file stays whole, because reading cannot begin in its middle.
        """
        return [span for file in files for span in _split_lines(folder, file, rows)]

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        (name,) = span.files
        row = span.first_row
        for some in _lines(folder / name, span, batch_size):
            try:
                if row == 0:
                    some[0] = some[0].removeprefix(codecs.BOM_UTF8)
                texts = [line.rstrip(b"\r\n").decode() for line in some]
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"{folder / name}: a line of rows {row} to {row + len(some) - 1} is not UTF-8 "
                    f"({error}); convert it"
                ) from error
            numbers = np.arange(row, row + len(some))
            yield {"file": objects([name] * len(some)), "row": numbers, "text": objects(texts)}
            row += len(some)


def _lines(path: Path, span: Span, count: int) -> Iterator[list[bytes]]:
    try:
        with (
            gzip.open(path)
            if is_gzipped(path.name)
            else path.open("rb", buffering=BUFFER_BYTES) as file
        ):
            if span.start:
                file.seek(span.start)
            lines = islice(file, span.rows)
            while some := list(islice(lines, count)):
                yield some
    # The file is torn or damaged. Errors of the disk are not caught, because another attempt may
    # succeed.
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _split_lines(folder: Path, name: str, rows: int) -> list[Span]:
    if is_gzipped(name):
        return [Span(files=(name,))]
    # All lines are read once, to find the byte at which each span begins.
    spans = []
    begin = 0
    first = 0
    with (folder / name).open("rb", buffering=BUFFER_BYTES) as file:
        while count := sum(1 for _ in islice(file, rows)):
            # Once for each span, because a tell() for each line would take long.
            stop = file.tell()
            spans.append(Span(files=(name,), start=begin, stop=stop, first_row=first, rows=count))
            begin = stop
            first = first + count
    return spans


class Npy:
    keys: tuple[str, ...] = ("file", "row")

    def split(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        spans = []
        for file in files:
            count = len(_map_file(folder / file))
            for start in range(0, count, rows):
                stop = min(start + rows, count)
                spans.append(
                    Span(files=(file,), start=start, stop=stop, first_row=start, rows=stop - start)
                )
        return spans

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        (name,) = span.files
        array = _map_file(folder / name)
        stop = len(array) if span.stop is None else span.stop
        for start in range(span.start, stop, batch_size):
            # A copy: predictors may write into their batch, and the mapping is read-only.
            values = np.array(array[start : min(start + batch_size, stop)])
            numbers = np.arange(start, start + len(values))
            yield {"file": objects([name] * len(values)), "row": numbers, "values": values}


def _map_file(path: Path) -> NDArray[Any]:
    try:
        # No pickles, because a file of data must not run code.
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as .npy: {error}") from error
    if array.ndim == 0:
        raise InvalidInput(f"{path} holds one number, not rows")
    return array

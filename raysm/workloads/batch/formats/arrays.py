"""Arrays of NumPy's own format: a record is a row, of any shape."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.format import Columns, Span
from raysm.workloads.batch.formats.whole_files import objects

__all__ = ["Npy"]


class Npy:
    """Reads arrays: columns ``file``, ``row`` and ``values``, array[n, …] with what the files hold."""

    keys: tuple[str, ...] = ("file", "row")

    def cut(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """See ``Format``; only headers are read."""
        spans = []
        for file in files:
            count = len(_mapped(folder / file))
            spans += [
                Span(
                    files=(file,),
                    start=start,
                    stop=min(start + rows, count),
                    first_row=start,
                    rows=min(rows, count - start),
                )
                for start in range(0, count, rows)
            ]
        return spans

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        """See ``Format``."""
        (name,) = span.files
        array = _mapped(folder / name)
        stop = len(array) if span.stop is None else span.stop
        for start in range(span.start, stop, batch_size):
            # A copy: predictors may write into their batch, and the mapping is read-only.
            values = np.array(array[start : min(start + batch_size, stop)])
            numbers = np.arange(start, start + len(values))
            yield {"file": objects([name] * len(values)), "row": numbers, "values": values}


def _mapped(path: Path) -> NDArray[Any]:
    try:
        # Never pickles: a file of data may not run code here.
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as .npy: {error}") from error
    if array.ndim == 0:
        raise InvalidInput(f"{path} holds one number, not rows")
    return array

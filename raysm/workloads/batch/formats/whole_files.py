"""Any files: a record is a file, with its bytes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.format import Columns, Span, groups_of

__all__ = ["WholeFiles", "objects"]


def objects(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return values as an array of objects: NumPy would make of equal lists a matrix, and of texts a padded type."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class WholeFiles:
    """Reads whole files: columns ``file`` and ``bytes``."""

    keys: tuple[str, ...] = ("file",)
    column = "bytes"

    def cut(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """See ``Format``."""
        return groups_of(files, rows)

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        """See ``Format``."""
        with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
            for start in range(0, len(span.files), batch_size):
                files = span.files[start : start + batch_size]
                values = list(pool.map(_naming(self.decode), [folder / file for file in files]))
                yield {"file": objects(files), self.column: self.joined(values)}

    def decode(self, path: Path) -> Any:
        """Return what a file holds."""
        return path.read_bytes()

    def joined(self, values: list[Any]) -> np.ndarray[Any, Any]:
        """Return the values of some files as one column."""
        return objects(values)


def _naming(decode: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Return the same, with errors that name the file."""

    def decoded(path: Path) -> Any:
        try:
            return decode(path)
        except MemoryError:
            raise
        # Whatever else: of a broken PNG Pillow says SyntaxError, of others what its decoder of that kind stumbled over.
        except Exception as error:
            raise InvalidInput(f"{path} cannot be read: {error}; remove it, or repair it") from error

    return decoded

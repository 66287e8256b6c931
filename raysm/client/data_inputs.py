"""Arrays, tensors and data frames as inputs: each becomes a file of the home, in a folder named by its content.

A job may outlive the process that sent it, so the file stays. Files that no job has been given for ``KEPT_S`` are
removed when the next one is saved.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raysm.contract.store import sha256_of
from raysm.errors import InvalidInput, MissingDependency, option

__all__ = ["KEPT_S", "is_data", "save"]

KEPT_S = 30 * 24 * 3600
"""How long a file stays after it was last given to a job, in seconds."""

CLASSES = (("numpy", "ndarray"), ("torch", "Tensor"), ("pandas", "DataFrame"), ("polars", "DataFrame"))
"""Packages and their classes that can be inputs; none of them is imported here unless the caller has done so."""


def is_data(item: object) -> bool:
    """Return whether an input is an array, a tensor or a data frame."""
    return _package(item) is not None


def save(channel: str, item: Any, home: Path, id_columns: Sequence[str] = ()) -> Path:
    """Save data as ``.npy`` or Parquet; the same content is the same file.

    Args:
        channel: The input that it is, which names the file.
        item: A NumPy array, a torch tensor, or a pandas or polars data frame.
        home: Root folder of this client's files.
        id_columns: Columns that name the rows; they may be levels of a pandas index.

    Returns:
        The file.

    Raises:
        InvalidInput: The data cannot be saved without losing something: a pandas index that carries information, a
            mask, Python objects.
        MissingDependency: pyarrow is not installed, which writes data frames.
    """
    inputs = home / "inputs"
    inputs.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_old(inputs)
    with tempfile.TemporaryDirectory(prefix=".", dir=inputs) as scratch:
        match _package(item):
            case "pandas":
                file = _save_table(channel, _pandas_table(channel, item, id_columns), Path(scratch))
            case "polars":
                file = _save_table(channel, item.to_arrow(), Path(scratch))
            case package:
                file = _save_array(channel, _numpy_array(channel, item) if package == "torch" else item, Path(scratch))
        kept = inputs / sha256_of(file)[:40] / file.name
        kept.parent.mkdir(exist_ok=True)
        # The time of the folder says when a job was last given the file.
        kept.parent.touch()
        file.replace(kept)
    return kept


def _package(item: object) -> str | None:
    for package, name in CLASSES:
        # The object's class exists only if its package is imported.
        kind = getattr(sys.modules.get(package), name, None)
        if kind is not None and isinstance(item, kind):
            return package
    return None


def _save_array(channel: str, array: Any, folder: Path) -> Path:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise InvalidInput(f"the input {channel!r} is a masked array; give numbers for what is masked: array.filled(…)")
    file = folder / f"{channel}.npy"
    try:
        np.save(file, array, allow_pickle=False)
    except ValueError as error:
        raise InvalidInput(
            f"the input {channel!r} is an array of {array.dtype}; give numbers: array.astype('float32')"
        ) from error
    return file


def _numpy_array(channel: str, tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise InvalidInput(f"the input {channel!r} is a tensor with the layout {tensor.layout}; give tensor.to_dense()")
    tensor = tensor.detach().cpu()
    # NumPy has no bfloat16 and no float8, whose values float32 can hold.
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg().numpy()


def _save_table(channel: str, table: Any, folder: Path) -> Path:
    import pyarrow.parquet as pq

    file = folder / f"{channel}.parquet"
    pq.write_table(table, file)
    return file


def _pandas_table(channel: str, frame: Any, id_columns: Sequence[str]) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingDependency("a data frame as an input needs pyarrow: python3 -m pip install pyarrow") from error
    if frame.columns.nlevels > 1:
        raise InvalidInput(f"the input {channel!r} has columns of several levels; give each column one name")
    names = list(frame.index.names)
    keeps_index = names != [None] and all(name in id_columns for name in names)
    if not keeps_index and not _only_counts(frame.index):
        named = "without a name" if names == [None] else ", ".join(map(repr, names))
        give = "frame.reset_index(names='id')" if names == [None] else "the frame as it is"
        column = option("id_column", "id" if names == [None] else names[0])
        raise InvalidInput(
            f"the data frame of the input {channel!r} has an index {named} that is not 0, 1, 2 … (it begins with "
            f"{frame.index[:1].tolist()}), which would be lost; if it names the rows, give {give} and {column}; if "
            "not, give frame.reset_index(drop=True)"
        )
    try:
        table = pa.Table.from_pandas(frame.reset_index() if keeps_index else frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(f"the data frame of the input {channel!r} cannot be saved: {error}") from error
    # What pandas notes about its own types is of no use here, and differs between its versions.
    return table.replace_schema_metadata(None)


def _only_counts(index: Any) -> bool:
    """Return whether an index of pandas is the default 0, 1, 2 … without a name, which carries no information."""
    import pandas as pd

    return isinstance(index, pd.RangeIndex) and index.name is None and (index.start, index.step) == (0, 1)


def _remove_old(inputs: Path) -> None:
    for folder in inputs.iterdir():
        try:
            if time.time() - folder.stat().st_mtime > KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            # Another process has just removed it.
            continue

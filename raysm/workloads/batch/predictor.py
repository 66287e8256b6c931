"""The user's predictor in a process that predicts: made once, called with every batch, and held to what it returns.

What flows in is the payload's pickle and batches, what flows out are tables of Arrow: the keys of the records and, in
the order in which the predictor names them, its predictions.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raysm.errors import InvalidRequest
from raysm.workloads.batch.formats.format import Columns, TableColumns
from raysm.workloads.pickles import unpickled

__all__ = ["Predictor", "predictor_of", "table_of"]

Predictor = Callable[[dict[str, Any]], Any]

_made: dict[Path, Predictor] = {}
"""By the payload's file: a process that predicts many pieces makes its model once."""


def predictor_of(pickled: Path, name: str) -> Predictor:
    """Return this process's predictor, made at the first call.

    Raises:
        InvalidPayload: It cannot be unpickled here.
    """
    if pickled not in _made:
        predictor, _, arguments = unpickled(pickled, name)
        # What making it raises passes through: a model that could not be downloaded is tried again with the piece.
        ready: Any = predictor(**arguments) if inspect.isclass(predictor) else functools.partial(predictor, **arguments)
        _made[pickled] = ready
    return _made[pickled]


def table_of(batch: Columns, predicted: object, keys: tuple[str, ...], keep: tuple[str, ...], name: str) -> pa.Table:
    """Return what the result has of a batch: keys, kept columns, predictions.

    Args:
        batch: The records, as the predictor was given them.
        predicted: What it returned.
        keys: Columns of the batch that name a record.
        keep: Other columns of the batch that are asked for.
        name: Of the predictor.

    Raises:
        InvalidRequest: It returned no mapping, another number of predictions, or a column that there is already; or
            the batch has no column that is to be kept.
    """
    rows = len(next(iter(batch.values())))
    if not isinstance(predicted, Mapping) or not predicted:
        raise InvalidRequest(
            f"{name} must return the predictions of a batch by column, {{'label': array}}, and returned a "
            f"{type(predicted).__name__}"
        )
    unknown = [column for column in keep if column not in batch]
    if unknown:
        raise InvalidRequest(f"keep names the column {unknown[0]!r}; the input has {', '.join(map(str, batch))}")
    columns_written = (*keys, *(column for column in keep if column not in keys))
    columns = {column: _kept(batch, column, name) for column in columns_written}
    for column, values in predicted.items():
        if column in columns:
            raise InvalidRequest(f"{name} returned the column {column!r}, which the records already have; rename it")
        array = _arrow(values, str(column), name)
        if len(array) != rows:
            raise InvalidRequest(
                f"{name} returned {len(array)} predictions in {column!r} for a batch of {rows} records; it must return "
                "one for each record"
            )
        columns[str(column)] = array
    return pa.table(columns)


def _kept(batch: Columns, column: str, name: str) -> pa.Array:
    """Return a column of the records: of a table as the table has it, so that all batches have one type."""
    if not isinstance(batch, TableColumns) or column not in batch.table.column_names:
        return _arrow(batch[column], column, name)
    own = batch.table.column(column)
    # Combined, a column is one array, unless it is larger than Arrow's arrays may be.
    combined = own.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _arrow(values: Any, column: str, name: str) -> pa.Array:
    """Return a column as Arrow has it: of two dimensions lists of one length, of more of them tensors."""
    if hasattr(values, "detach"):
        # A tensor of torch, wherever it lies; NumPy would refuse one that has gradients, or is on a GPU.
        values = values.detach().cpu().numpy()
    try:
        if isinstance(values, list | tuple) and not (values and hasattr(values[0], "__array__")):
            # Texts, mappings, lists of any length: Arrow knows more types than NumPy does.
            return pa.array(list(values))
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
        if array.ndim == 0:
            raise InvalidRequest(
                f"{name} returned one value in {column!r} for a whole batch; it must return one for each record"
            )
        if array.dtype == object or array.dtype.kind in "US":
            return pa.array(array.tolist())
        if array.ndim == 1:
            return pa.array(array)
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        if array.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise InvalidRequest(f"the column {column!r} of {name} cannot be written to Parquet: {error}") from error

"""One piece, in the process that predicts it: read ahead, predicted batch by batch, returned as one Parquet file.

What flows in is a piece, what flows out is a ``Part``. Its bytes depend on the piece and the predictor alone: nothing
in it tells who made it.
"""

import io
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from raysm.bootstrap import environment
from raysm.contract.payload import FUNCTION
from raysm.errors import InvalidRequest
from raysm.request.batch import BatchInference
from raysm.workloads.batch.columns import InputColumns, filled
from raysm.workloads.batch.formats import named
from raysm.workloads.batch.piece import Piece
from raysm.workloads.batch.predictor import predictor_of, table_of

__all__ = ["Part", "Prediction", "ahead", "differing", "parquet_of", "predict"]

T = TypeVar("T")

AHEAD = 2
"""Batches that are read while one is predicted: one would do if reading took always as long as predicting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What every process that predicts is told."""

    workload: BatchInference
    """What is asked for."""
    channel: str
    """Which channel is read."""
    format: str
    """How."""
    threads: int
    """How many may decode at once."""
    columns: InputColumns | None = None
    """The columns of all files, if they are tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The predictions of one piece."""

    rows: int
    """How many; 0 of a file without records, which becomes no file."""
    schema: pa.Schema | None
    """Names and types of its columns; None without rows. A column without a value has the type null."""
    content: bytes
    """A Parquet file."""


def predict(prediction: Prediction, piece: Piece) -> Part:
    """Predict a piece, with the predictor of this process.

    Raises:
        InvalidInput: A file cannot be read.
        InvalidRequest: The predictor cannot be made, or returned what cannot be written.
    """
    instance, workload = environment.read(), prediction.workload
    # Before anything is read: a model that cannot be made is an error of the first second.
    predictor = predictor_of(instance.payload / FUNCTION, workload.name)
    reader = named(prediction.format, prediction.columns)
    folder = instance.paths.channel(prediction.channel)
    batches = reader.batches(folder, piece.span, workload.batch_size, prediction.threads)
    tables = []
    for batch in ahead(batches, AHEAD):
        # The predictor's own: what it adds or changes is not what the keys are taken from.
        predicted = predictor(dict(batch))
        tables.append(table_of(batch, predicted, reader.keys, workload.keep, workload.name))
    if not tables:
        return Part(rows=0, schema=None, content=b"")
    table = _joined(tables, workload.name, piece)
    return Part(rows=len(table), schema=table.schema, content=parquet_of(table))


def _joined(tables: list[pa.Table], name: str, piece: Piece) -> pa.Table:
    schema: pa.Schema = tables[0].schema
    for table in tables[1:]:
        merged = filled(schema, table.schema)
        if merged is None:
            raise InvalidRequest(
                f"{name} must return the same columns with the same types for every batch; in {piece} they differ:\n"
                f"{differing(table.schema, schema)}"
            )
        schema = merged
    return pa.concat_tables([table.cast(schema) for table in tables]).combine_chunks()


def differing(these: pa.Schema, those: pa.Schema) -> str:
    """Return the columns that are in one of two schemas alone, a line each."""
    mine, others = str(these).splitlines(), str(those).splitlines()
    return "\n".join(
        [f"  {line}" for line in mine if line not in others] + [f"  not {line}" for line in others if line not in mine]
    )


def parquet_of(table: pa.Table) -> bytes:
    """Return a table as a Parquet file of one row group: the same bytes for the same rows."""
    sink = io.BytesIO()
    # zstd: predictions are mostly few labels and texts, and travel to the head and from there to S3.
    pq.write_table(table, sink, compression="zstd", row_group_size=max(1, len(table)))
    return sink.getvalue()


def ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield items, of which so many are made in a thread meanwhile; what making them raises is raised here."""
    items_ahead: queue.Queue[tuple[bool, Any]] = queue.Queue(maxsize=count)
    ended, left = object(), threading.Event()

    def make() -> None:
        try:
            for item in items:
                if not _put(items_ahead, (True, item), left):
                    return
            _put(items_ahead, (True, ended), left)
        except BaseException as error:  # raised where it is waited for
            _put(items_ahead, (False, error), left)

    thread = threading.Thread(target=make, name="reading-ahead", daemon=True)
    thread.start()
    try:
        while True:
            is_item, item = items_ahead.get()
            if not is_item:
                raise item
            if item is ended:
                return
            yield item
    finally:
        # Also where nobody wants more: a reader that waits for room would wait for ever, with its files open.
        left.set()
        thread.join()


def _put(items_ahead: "queue.Queue[Any]", item: Any, left: threading.Event) -> bool:
    while not left.is_set():
        try:
            items_ahead.put(item, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False

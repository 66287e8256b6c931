"""Batch inference on the head: pieces go to processes that keep their model, and parts come back.

Each part is written once, under a name that is its place in the input, whichever process predicted
it.
"""

import functools
import hashlib
import io
import itertools
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from raysm.core.protocol.events import Metric, State
from raysm.core.protocol.names import counted
from raysm.core.protocol.result import ResultFile
from raysm.core.protocol.store import put, remove_unfinished
from raysm.core.request.options import decisive_json
from raysm.errors import InvalidRequest
from raysm.features.batch.cluster.columns import InputColumns, has_mappings, widen
from raysm.features.batch.cluster.pieces import Piece, describe, survey
from raysm.features.batch.cluster.predict import (
    PART_FORMAT,
    Part,
    Prediction,
    decode_part,
    describe_difference,
    encode_part,
    fit_tables,
    predict,
    to_parquet,
)
from raysm.features.batch.cluster.tables import Table
from raysm.features.batch.request import BatchInference
from raysm.instance.log import emit_event
from raysm.instance.work.blocks import map_blocks
from raysm.instance.work.disk import full_disk_is_no_room
from raysm.instance.work.nodes import Node, cluster_nodes
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.report import EmitEvent, ProgressThrottle
from raysm.instance.work.runner import Runner, leave_on_sigterm

RATE_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    cpus: float
    gpus: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    files: tuple[ResultFile, ...]
    rows: int
    predicted: int
    """Rows without those of resumed parts."""
    resumed: int
    seconds: float


def choose_size(workload: BatchInference, nodes: Sequence[Node]) -> Size:
    """Return the resources of one process.

    They are those asked for, or a GPU with its share of the CPUs, or one CPU.
    """
    with_gpus = [node for node in nodes if node.gpus and node.cpus]
    gpus = float(bool(with_gpus)) if workload.gpus is None else float(workload.gpus)
    if workload.cpus is not None:
        return Size(cpus=float(workload.cpus), gpus=gpus)
    # The fewest CPUs that an instance has for each GPU: with one more, its last GPU would have no
    # process.
    shares = [int(node.cpus / node.gpus * gpus) for node in with_gpus] if gpus else []
    return Size(cpus=float(max(1, min(shares, default=1))), gpus=gpus)


def run_batch(
    workload: BatchInference,
    channel: str,
    pickled: Path,
    emit_event: EmitEvent,
    *,
    result: Path,
    records: Path | None = None,
    code: str = "",
) -> Outcome:
    """Predict all records of a channel on the connected cluster.

    The parts go into the head's folder ``result``; ``records`` keeps finished ones after this job's
    containers, for a run with the same ``code``, the digest of the user's program.
    """
    emit_event(State(name="running"))
    kind, pieces, columns = survey(workload, channel, emit_event)
    size = choose_size(workload, cluster_nodes())
    # The user sees how the input was understood before anything is computed.
    print(describe(channel, kind, pieces, columns), flush=True)  # noqa: T201 - the job's log
    names = [] if columns is None else [*Table.keys, *columns.schema.names]
    unknown = [column for column in workload.keep if columns is not None and column not in names]
    if unknown:
        raise InvalidRequest(
            f"keep names the column {unknown[0]!r}; the input has {', '.join(dict.fromkeys(names))}"
        )
    # Ray counts fractions of CPUs.
    threads = max(1, int(size.cpus))
    prediction = Prediction(
        workload=workload, channel=channel, format=kind, threads=threads, columns=columns
    )
    # Without checkpoints nothing outlives the containers, so a second copy of each part would be
    # useless.
    record = (
        None if records is None else open_record(records, workload, pieces, pickled, columns, code)
    )
    resumed = set() if record is None else {piece.number for piece in pieces if piece in record}
    if resumed:
        print(  # noqa: T201
            f"{len(resumed):,} of {len(pieces):,} parts are kept from an earlier run", flush=True
        )
    if record is not None and record.dropped:
        dropped = counted(record.dropped, "part")
        print(  # noqa: T201
            f"{dropped} of an earlier run are predicted again: its records, options, environment "
            "or code were others",
            flush=True,
        )
    if record is not None and record.outdated:
        outdated = counted(record.outdated, "part")
        text = f"{outdated} of an earlier version of raysm, which wrote pickles: predicted again"
        print(text, flush=True)  # noqa: T201
    gathered = Gathered(result, pieces, workload.name, emit_event, resumed)
    # Pieces begin in turns, the first of each instance and then the second of each: in the order of
    # the input the first ones could all be on one instance, and the others would have no work.
    turns: dict[str | None, Iterator[int]] = defaultdict(itertools.count)
    in_turns = sorted(pieces, key=lambda piece: (next(turns[piece.host]), piece.number))
    # Counted from here, so that the rate does not include listing and cutting files.
    begun_s = time.monotonic()
    call = functools.partial(predict, prediction)
    for piece, part in map_blocks(
        call, in_turns, record=record, num_cpus=size.cpus, num_gpus=size.gpus, lasting=True
    ):
        gathered.take(piece, part)
    files = gathered.files()
    # Removed only when every part is in its place: until then a restart continues from the record.
    if record is not None:
        record.remove()
    seconds = time.monotonic() - begun_s
    return Outcome(
        files=files,
        rows=gathered.rows,
        predicted=gathered.predicted,
        resumed=len(resumed),
        seconds=seconds,
    )


def open_record(
    folder: Path,
    workload: BatchInference,
    pieces: Sequence[Piece],
    pickled: Path,
    columns: InputColumns | None,
    code: str = "",
) -> BlockRecord[Part]:
    """Return the record of finished parts; they depend on everything but the cluster."""
    # All fields of the pieces, because str(piece) names only the first of many files.
    depends_on: dict[str, Any] = {
        "workload": decisive_json(workload),
        "predictor": hashlib.sha256(pickled.read_bytes()).hexdigest(),
        "pieces": hashlib.sha256("\n".join(map(repr, pieces)).encode()).hexdigest(),
        "columns": None if columns is None else str(columns.schema),
        # The predictor's pickle names the modules that are sent beside it, and has none of their
        # text.
        "code": code,
    }
    return BlockRecord(
        folder,
        depends_on,
        encode=encode_part,
        decode=decode_part,
        format=PART_FORMAT,
        for_later=True,
    )


class Gathered:
    """The parts of the result, in the head's folder; in the end all have the same types.

    Args:
        folder: The folder of the parts.
        pieces: All pieces of the input.
        name: Name of the predictor, for messages.
        emit_event: Takes progress and the rate.
        resumed: Numbers of the pieces that an earlier run predicted; they count for no rate.
    """

    def __init__(
        self,
        folder: Path,
        pieces: Sequence[Piece],
        name: str,
        emit_event: EmitEvent,
        resumed: Collection[int] = (),
    ) -> None:
        self.rows = self.predicted = 0
        self._folder = folder
        self._name = name
        self._resumed = resumed
        self._emit = emit_event
        self._files: dict[int, ResultFile] = {}
        self._schema: pa.Schema | None = None
        self._written: dict[Piece, pa.Schema] = {}
        self._progress = ProgressThrottle(
            "predict", len(pieces), "parts", emit_event, done=len(resumed)
        )
        self._begun_s = self._rated_s = time.monotonic()

    def take(self, piece: Piece, part: Part) -> None:
        """Write a part in its place.

        Raises:
            InvalidRequest: No type holds the part's values of a column and those of other parts.
        """
        # The piece of an empty file keeps its number, so that the names of other parts do not
        # depend on it.
        if part.rows:
            self._take_rows(piece, part)
            self.rows += part.rows
        if piece.number in self._resumed:
            return
        self.predicted += part.rows
        self._progress.add(1)
        now_s = time.monotonic()
        if now_s - self._rated_s >= RATE_S:
            self._rated_s = now_s
            self._emit(Metric(name="rows_per_s", value=self.predicted / (now_s - self._begun_s)))

    def files(self) -> tuple[ResultFile, ...]:
        for piece, schema in self._written.items():
            # Another part made the types wider; this one is written again.
            if schema != self._schema:
                self._write_converted(piece, pq.read_table(self._folder / piece.file))
        return tuple(self._files[number] for number in sorted(self._files))

    def _take_rows(self, piece: Piece, part: Part) -> None:
        assert part.schema is not None, "a part with rows has columns"
        self._schema = (
            part.schema if self._schema is None else self._widen(self._schema, piece, part)
        )
        if part.schema == self._schema:
            self._write(piece, part.rows, part.content)
        else:
            self._write_converted(piece, pq.read_table(io.BytesIO(part.content)))
        self._written[piece] = self._schema

    def _widen(self, schema: pa.Schema, piece: Piece, part: Part) -> pa.Schema:
        merged = widen(schema, part.schema)
        if not isinstance(merged, pa.Schema):
            first = self._first_with_values(merged)
            then = pq.read_table(io.BytesIO(part.content))
            raise InvalidRequest(
                describe_difference(self._name, merged, first, (f"in {piece}", [then]))
            )
        # Now, and not after all parts were predicted: whole numbers may not fit among fractions.
        changed = [
            field.name
            for field, before in zip(merged, schema, strict=True)
            if not pa.types.is_null(before.type)
            and before.type != field.type
            and not has_mappings(field.type)
        ]
        if changed:
            types = pa.schema([merged.field(name) for name in changed])
            for written in self._written:
                table = pq.read_table(self._folder / written.file, columns=changed)
                fit_tables([table], types, self._name, str(written))
        return merged

    def _first_with_values(self, column: str | None) -> tuple[str, list[pa.Table]]:
        columns = None if column is None else [column]
        for piece in sorted(self._written, key=lambda piece: piece.number):
            table = pq.read_table(self._folder / piece.file, columns=columns)
            if column is None or table.column(column).null_count < len(table):
                return f"in {piece}", [table]
        raise AssertionError(f"a column without a value has a type: {column}")

    def _write_converted(self, piece: Piece, table: pa.Table) -> None:
        table = fit_tables([table], self._schema, self._name, str(piece))
        self._write(piece, len(table), to_parquet(table))

    def _write(self, piece: Piece, rows: int, content: bytes) -> None:
        path = self._folder / piece.file
        with full_disk_is_no_room(path, f"{piece} was written"):
            put(path, content)
        self._files[piece.number] = ResultFile(
            name=piece.file,
            shape=(rows,),
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            how_to_read=f'import pyarrow.parquet as pq; table = pq.read_table("{piece.file}")',
            units=("rows",),
        )


class BatchRunner(Runner[BatchInference]):
    def run(self, address: str) -> None:
        channel = self.workload.channel_of(self.request.inputs)
        ray.init(address=address, configure_logging=False)
        # Finished parts are on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm(self._clean)
        paths = self.environment.paths
        records = paths.batch if self.environment.has_checkpoints else None
        try:
            outcome = run_batch(
                self.workload,
                channel,
                self.payload.function,
                emit_event,
                result=paths.model,
                records=records,
                code=self.payload.code_digest,
            )
        finally:
            ray.shutdown()
            self._clean()
        parts = f"{len(outcome.files):,} part{'s' * (len(outcome.files) != 1)}"
        self.describe_result(
            {"predict": outcome.seconds},
            packages=self.workload.packages,
            described=outcome.files,
            measures={
                "rows": float(outcome.rows),
                "rows_per_s": outcome.predicted / outcome.seconds if outcome.seconds > 0 else 0.0,
                "resumed_parts": float(outcome.resumed),
            },
            summary=f"{outcome.rows:,} predictions by {self.workload.name} in {parts}",
        )

    def _clean(self) -> None:
        # Unfinished files: the model folder of a stopped job is uploaded too.
        remove_unfinished(self.environment.paths.model)

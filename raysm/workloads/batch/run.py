"""Batch inference on the head: pieces go to processes that keep their model, and parts come back.

Each part is written once, under a name that is its place in the input, whichever process predicted it.
"""

import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from raysm.bootstrap.log import emit_event
from raysm.contract.events import Metric, State
from raysm.contract.result import ResultFile
from raysm.contract.store import put, remove_unfinished
from raysm.errors import InvalidRequest
from raysm.request.batch import BatchInference
from raysm.request.options import decisive_json
from raysm.workloads.batch.columns import InputColumns, filled
from raysm.workloads.batch.pieces import Piece, described, pieces_of, scan_columns
from raysm.workloads.batch.predict import Part, Prediction, differing, parquet_of, predict
from raysm.workloads.batch.tables import Table
from raysm.workloads.blocks import map_blocks
from raysm.workloads.disk import full_disk_is_no_room
from raysm.workloads.nodes import Node, cluster_nodes
from raysm.workloads.record import BlockRecord
from raysm.workloads.report import EmitEvent, ProgressThrottle
from raysm.workloads.runner import Runner, leave_on_sigterm

RATE_S = 5.0
"""Seconds between two metrics of the rate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFolders:
    """Folders on the head."""

    result: Path
    records: Path | None
    """Keeps finished parts after this job's containers; None keeps none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The resources of one process that predicts."""

    cpus: float
    gpus: float

    @property
    def threads(self) -> int:
        # Ray counts fractions of CPUs.
        return max(1, int(self.cpus))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The parts of a prediction."""

    files: tuple[ResultFile, ...]
    rows: int
    resumed: int
    seconds: float
    size: Size


def size_of(workload: BatchInference, nodes: Sequence[Node]) -> Size:
    """Return the resources of one process: those asked for, or a GPU with its share of the CPUs, or one CPU."""
    with_gpus = [node for node in nodes if node.gpus and node.cpus]
    gpus = float(bool(with_gpus)) if workload.gpus is None else float(workload.gpus)
    if workload.cpus is not None:
        return Size(cpus=float(workload.cpus), gpus=gpus)
    # The fewest CPUs that an instance has for each GPU: with one more, its last GPU would have no process.
    shares = [int(node.cpus / node.gpus * gpus) for node in with_gpus] if gpus else []
    return Size(cpus=float(max(1, min(shares, default=1))), gpus=gpus)


def run_batch(
    workload: BatchInference, channel: str, pickled: Path, folders: OutputFolders, emit_event: EmitEvent
) -> Outcome:
    """Predict all records of a channel on the connected cluster.

    Args:
        workload: The request's workload.
        channel: Name of the channel.
        pickled: The predictor's file in the payload.
        folders: Where to write.
        emit_event: Receives the events of the run.

    Raises:
        InvalidInput: The channel has no files, or one cannot be read.
        InvalidRequest: The predictor returned values that cannot be written, or no instance can run it.
        BlockFailed: A piece failed on every attempt; the message has the predictor's traceback.
        InstanceLost: An instance that alone has some records went away for good.
        NoRoom: The head's disk is full.
    """
    emit_event(State(name="running"))
    kind, pieces = pieces_of(workload, channel)
    size = size_of(workload, cluster_nodes())
    columns = scan_columns(workload, channel, kind, pieces, emit_event)
    # The user sees how the input was understood before anything is computed.
    print(described(channel, kind, pieces, columns), flush=True)  # noqa: T201 - the job's log
    if columns is not None:
        _check_keep(workload, columns)
    prediction = Prediction(workload=workload, channel=channel, format=kind, threads=size.threads, columns=columns)
    record = _record(folders, workload, pieces, pickled, columns)
    resumed = 0 if record is None else sum(piece in record for piece in pieces)
    gathered = Gathered(folders.result, pieces, emit_event)
    # Counted from here, so that the rate does not include listing and cutting files.
    begun_s = time.monotonic()
    for piece, part in map_blocks(
        functools.partial(predict, prediction),
        _interleaved(pieces),
        record=record,
        num_cpus=size.cpus,
        num_gpus=size.gpus,
        lasting=True,
    ):
        gathered.take(piece, part)
    files = gathered.files()
    # Removed only when every part is in its place: until then a restart continues from the record.
    if record is not None:
        record.remove()
    seconds = time.monotonic() - begun_s
    return Outcome(files=files, rows=gathered.rows, resumed=resumed, seconds=seconds, size=size)


def _check_keep(workload: BatchInference, columns: InputColumns) -> None:
    names = dict.fromkeys((*Table.keys, *columns.schema.names))
    unknown = [column for column in workload.keep if column not in names]
    if unknown:
        raise InvalidRequest(f"keep names the column {unknown[0]!r}; the input has {', '.join(names)}")


def _interleaved(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces in the order in which they begin: the first of each instance, then the second of each."""
    # In the order of the input, the first pieces could all be on one instance, and the others would have no work.
    turns: dict[str | None, int] = {}
    keyed = []
    for piece in pieces:
        turn = turns.get(piece.host, 0)
        turns[piece.host] = turn + 1
        keyed.append((turn, piece.number, piece))
    return [piece for _, _, piece in sorted(keyed, key=lambda item: item[:2])]


def _record(
    folders: OutputFolders,
    workload: BatchInference,
    pieces: Sequence[Piece],
    pickled: Path,
    columns: InputColumns | None,
) -> BlockRecord[Part] | None:
    """Return the record of finished parts; they depend on everything but the cluster."""
    # Without checkpoints nothing outlives the containers, so a second copy of each part would be useless.
    if folders.records is None:
        return None
    # All fields of the pieces, because str(piece) names only the first of many files.
    depends_on: dict[str, Any] = {
        "workload": decisive_json(workload),
        "predictor": hashlib.sha256(pickled.read_bytes()).hexdigest(),
        "pieces": hashlib.sha256("\n".join(map(repr, pieces)).encode()).hexdigest(),
        "columns": None if columns is None else str(columns.schema),
    }
    return BlockRecord(folders.records, depends_on, for_later=True)


class Gathered:
    """Collects the parts, writes them, and checks that they have the same columns."""

    def __init__(self, folder: Path, pieces: Sequence[Piece], emit_event: EmitEvent) -> None:
        self.rows = 0
        self._folder, self._pieces, self._emit = folder, pieces, emit_event
        self._files: dict[int, ResultFile] = {}
        self._schema: pa.Schema | None = None
        self._first: Piece | None = None
        # Parts in which a column has no value, and so no type.
        self._incomplete: list[tuple[Piece, pa.Schema]] = []
        self._progress = ProgressThrottle("predict", len(pieces), "parts", emit_event)
        self._begun_s = self._rated_s = time.monotonic()

    def take(self, piece: Piece, part: Part) -> None:
        """Write a part in its place; raise InvalidRequest if its columns differ from those of the other parts."""
        # The piece of an empty file keeps its number, so that the names of other parts do not depend on it.
        if part.rows:
            self._check(piece, part)
            self._write(piece, part.rows, part.content)
            self.rows += part.rows
        self._progress.add(1)
        now_s = time.monotonic()
        if now_s - self._rated_s >= RATE_S:
            self._rated_s = now_s
            self._emit(Metric(name="rows_per_s", value=self.rows / (now_s - self._begun_s)))

    def files(self) -> tuple[ResultFile, ...]:
        """Return the files in the order of the input, after all parts were taken."""
        for piece, schema in self._incomplete:
            # Another part has the type. This one is written again, so that all parts have the same columns.
            if schema != self._schema:
                table = pq.read_table(self._folder / piece.file).cast(self._schema)
                self._write(piece, len(table), parquet_of(table))
        return tuple(self._files[number] for number in sorted(self._files))

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

    def _check(self, piece: Piece, part: Part) -> None:
        assert part.schema is not None, "a part with rows has columns"
        # The first that comes, which need not be the first in order; the message names both.
        if self._schema is None:
            self._schema, self._first = part.schema, piece
        schema = filled(self._schema, part.schema)
        if schema is None:
            raise InvalidRequest(
                f"the predictions of {piece} have other columns than those of {self._first}; return the same columns "
                f"with the same types for every batch:\n{differing(part.schema, self._schema)}"
            )
        self._schema = schema
        if part.schema != schema or "null" in str(part.schema):
            self._incomplete.append((piece, part.schema))


def measures_of(outcome: Outcome) -> Mapping[str, float]:
    return {
        "rows": float(outcome.rows),
        "rows_per_s": outcome.rows / outcome.seconds if outcome.seconds > 0 else 0.0,
        "resumed_parts": float(outcome.resumed),
    }


class BatchRunner(Runner[BatchInference]):
    """Predicts all records of a channel."""

    def run(self, address: str) -> None:
        channel = self.workload.channel_of(self.request.inputs)
        ray.init(address=address, configure_logging=False)
        # Finished parts are on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm(self._clean)
        paths = self.environment.paths
        records = paths.batch if self.environment.has_checkpoints else None
        try:
            folders = OutputFolders(result=paths.model, records=records)
            outcome = run_batch(self.workload, channel, self.payload.function, folders, emit_event)
        finally:
            ray.shutdown()
            self._clean()
        parts = f"{len(outcome.files):,} part{'s' * (len(outcome.files) != 1)}"
        self.describe_result(
            {"predict": outcome.seconds},
            packages=self.workload.packages,
            described=outcome.files,
            measures=measures_of(outcome),
            summary=f"{outcome.rows:,} predictions by {self.workload.name} in {parts}",
        )

    def _clean(self) -> None:
        # Unfinished files: the model folder of a stopped job is uploaded too.
        remove_unfinished(self.environment.paths.model)

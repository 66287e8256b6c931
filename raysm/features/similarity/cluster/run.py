"""One run of the workload on the head: its folders, its rows and its report."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import raysm
from raysm.core.protocol.events import State
from raysm.core.request.codec import to_json
from raysm.features.similarity.cluster.reading.columns import Ids
from raysm.features.similarity.cluster.reading.matrix import MatrixInfo
from raysm.features.similarity.cluster.tasks import Context, Part, decode_part, encode_part
from raysm.features.similarity.request import PAIRS_RATE, ROWS_RATE, Similarity
from raysm.instance.work.blocks import Record
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.report import EmitEvent, ProgressThrottle
from raysm.instance.work.row_blocks import RowBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    result: Path
    records: Path
    is_durable: bool = True
    """True if ``records`` outlives this head, as checkpoints do, and recording pays. Otherwise only
    pieces that do not fit into memory are recorded."""
    on_instance: Callable[[], "Folders"] | None = None
    """Returns the folders of the instance that calls it; None: every instance uses these."""


@dataclass(kw_only=True, slots=True)
class Report:
    emit_event: EmitEvent
    phases_s: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    # Several if instances differ: each process probes which engine is the fastest.
    engines: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    sent_bytes: dict[str, int] = field(default_factory=dict)
    """Rows of a sharded matrix that each instance sent to others."""
    task_seconds: float = 0.0
    prepared_rows: int = 0
    prepare_s: float = 0.0
    """Core-seconds in which these rows were prepared."""
    pairs_per_s: list[float] = field(default_factory=list)
    """Of each block, on one core or GPU."""
    block_times_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each block of pairs on one core, or on one GPU, by the instance that computed
    it."""
    blocks: int = 0
    blocks_found: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        # Not in a ``finally``: if a phase fails, no manifest is written.
        self.phases_s[name] = round(self.phases_s.get(name, 0.0) + time.perf_counter() - begin, 4)

    def add(self, part: Part) -> None:
        for host, peak in part.peaks.items():
            self.peaks[host] = max(self.peaks[host], peak)
        self.task_seconds += part.seconds
        self.engines.update(part.engines)

    def add_prepared(self, block: RowBlock, part: Part) -> None:
        self.add(part)
        self.prepared_rows += block.rows
        self.prepare_s += part.seconds

    def add_compared(self, pairs: float, part: Part) -> None:
        """Add a block that is finished; one that was given up counts by its pieces."""
        self.pairs_per_s.append(pairs / max(part.seconds, 1e-6))
        for host in part.peaks:
            self.block_times_s[host].append(part.seconds)

    def timings(self) -> dict[str, float]:
        """Return how long blocks took, and how much one core did in a second.

        The result is empty if no block was timed.
        """
        times = [each for of_host in self.block_times_s.values() for each in of_host]
        if not times or not self.prepare_s:
            return {}
        medians = {
            f"block_s_{host}": round(statistics.median(of_host), 6)
            for host, of_host in sorted(self.block_times_s.items())
        }
        return {
            "block_s": round(statistics.median(times), 6),
            "block_max_s": round(max(times), 6),
            **medians,
            # The median: the first block of a process also loads its engine.
            PAIRS_RATE: round(statistics.median(self.pairs_per_s), 1),
            ROWS_RATE: round(self.prepared_rows / self.prepare_s, 1),
        }

    def count(self, tasks: Sequence[Any], recorded: Record[Part] | None) -> None:
        # Count once: when tiles are computed again after a loss, this run has recorded the others
        # itself.
        if self.blocks:
            return
        self.blocks += len(tasks)
        self.blocks_found += 0 if recorded is None else sum(task in recorded for task in tasks)

    @contextmanager
    def gathering(self, rows: int) -> Iterator[ProgressThrottle]:
        self.emit_event(State(name="gathering"))
        with self.phase("gathering"):
            yield ProgressThrottle("gather", rows, "rows", self.emit_event)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    workload: Similarity
    folders: Folders
    matrix: MatrixInfo
    other_queries: MatrixInfo | None
    digests: Mapping[str, str]
    context: Context

    @property
    def queries(self) -> MatrixInfo:
        return self.other_queries or self.matrix

    @property
    def self_join(self) -> bool:
        return self.other_queries is None

    def record(self, kind: str) -> BlockRecord[Part]:
        # ``workload`` has only a block size that the user asked for; the record's folder keeps a
        # size that raysm chose. The version counts because another raysm may cut the rows, or lay
        # out a part, differently.
        depends_on = {
            "format": 8,
            "kind": kind,
            "workload": to_json(self.workload),
            "inputs": self.digests,
        }
        depends_on |= {
            "rows": self.queries.rows,
            "columns": self.matrix.columns,
            "raysm": raysm.__version__,
        }
        return BlockRecord(self.folders.records, depends_on, encode=encode_part, decode=decode_part)

    def ids(self) -> Ids | None:
        """Fetch the ids of the rows, once all is computed.

        Return None if the user named no id column.
        """
        if self.matrix.ids is None or self.queries.ids is None:
            return None
        neighbors = pa.concat_arrays(list(self.matrix.id_batches()))
        if self.other_queries is None:
            return Ids(neighbors=neighbors)
        return Ids(
            neighbors=neighbors, queries=pa.concat_arrays(list(self.other_queries.id_batches()))
        )

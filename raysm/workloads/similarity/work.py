"""What the phases of one run of the workload tell each other."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from raysm.request.similarity import Similarity
from raysm.workloads.announce import Announce
from raysm.workloads.similarity.reading.matrix import Described
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part

__all__ = ["Folders", "Work"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """Where the head writes."""

    result: Path
    """The result and its manifest."""
    records: Path
    """Finished blocks; kept from one run of the job to the next where checkpoints are."""


@dataclass(kw_only=True, slots=True)
class Work:
    """One run: what is asked for, where, and what has been done so far."""

    workload: Similarity
    """What is asked for."""
    folders: Folders
    """Where the head writes."""
    scratch: Path
    """Where the head keeps what is merged."""
    announce: Announce
    """Where events go."""
    matrix: Described
    """The rows among which neighbors are looked for."""
    queries: Described | None
    """The rows that look for them, where those are another matrix's."""
    context: Context
    """What tasks are told."""
    merged_tiles: int | None = None
    """Tiles on a side of a group whose parts are merged on an instance; None: see ``sizes.merged_tiles``."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each channel's files."""
    sent_bytes: dict[str, int] = field(default_factory=dict)
    """Rows of a sharded matrix that each instance sent to others."""
    phases_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase."""
    peaks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Largest memory of a task, by instance."""
    engines: set[str] = field(default_factory=set)
    """What was computed with."""
    notes: list[str] = field(default_factory=list)
    """What the manifest is to say of how it was computed."""
    task_seconds: float = 0.0
    """Seconds of all tasks together."""
    blocks: int = 0
    """Tiles, those of an earlier run among them."""
    blocks_found: int = 0
    """Tiles of an earlier run."""

    @property
    def seekers(self) -> Described:
        """The rows that look for neighbors."""
        return self.matrix if self.queries is None else self.queries

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase; what is entered twice counts twice."""
        begin = time.perf_counter()
        yield
        self.phases_s[name] = round(self.phases_s.get(name, 0.0) + time.perf_counter() - begin, 4)

    def took_part(self, part: Part) -> None:
        """Note who computed a part, and what it took."""
        for host, peak in part.peaks.items():
            self.peaks[host] = max(self.peaks[host], peak)
        self.task_seconds += part.seconds
        self.engines.update(part.engines)

"""What may be asked of rows, as the layouts see it: a mode says what tasks hand back, and makes the result of it.

To add one is to write a file with a ``Mode`` and its ``Collector``, and one line in ``modes.MODES``. What flows in are
tiles of pairs, wherever the rows lie; what flows out are files of the result.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import Record, TileBlock
from raysm.workloads.gather import free_bytes
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.row_order import RowOrder
from raysm.workloads.similarity.owning.owned import Owned
from raysm.workloads.similarity.reading.matrix import Described, Matrix
from raysm.workloads.similarity.runs import Folders, Run
from raysm.workloads.similarity.sizing.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import Comparing, FreeTile, TileTask

__all__ = ["Collector", "Mode", "Tiling"]


class Tiling(Protocol):
    """How a layout cut the pairs into tasks, as far as a mode has to know."""

    @property
    def tasks(self) -> Sequence[TileTask]:
        """All of them."""
        ...

    @property
    def row_order(self) -> RowOrder:
        """Numbers and places of the rows that look for neighbors."""
        ...

    @property
    def in_strips(self) -> bool:
        """Whether each task has all columns, and the tasks' rows follow each other: they come about in order."""
        ...


class Collector(ABC):
    """What a mode makes of the parts, on the head. It is closed however the work ends."""

    # A part that another run finished is read, not computed: its name has all that decides its bytes.
    recorded: Record[Part] | None = None
    """Where parts are kept, for another run to find them; None: nothing is."""
    comparing: Comparing | None = None
    """What tasks do in the mode's place; None: what the mode says."""
    note: str = ""
    """What is to be said of it."""

    @abstractmethod
    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Take in a part; return the pieces of its tile that are to be computed instead, where the task gave it up.

        They are in rows counted from the tile's first, so that whoever dispatches them need not know where rows lie.
        """

    @abstractmethod
    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...] | None:
        """Write the result; return its files, or None where parts that were taken in are lost, and made again."""

    # Not abstract: what most modes need not say, a new one need not write.
    def hint(self, task: TileTask) -> Any:
        """Return what a task is told as it is dispatched."""
        return None

    def remove_records(self) -> None:  # noqa: B027
        """Remove what is recorded elsewhere than on the head, once it is in the result."""

    def close(self) -> None:  # noqa: B027
        """Let go of what is held; most hold nothing."""


class Mode(ABC):
    """One thing that may be asked for. It travels to the tasks."""

    name: ClassVar[str]
    """What its parts are recorded under."""
    without_gpus: ClassVar[str] = ""
    """Why GPUs do not compute it, in one phrase; empty where they do."""
    in_strips: ClassVar[bool] = False
    """Where rows lie whole, it has strips of whole rows dealt, each pair twice, and not the tiles of the triangle."""

    @classmethod
    @abstractmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if that is what is asked for."""

    @property
    @abstractmethod
    def limits(self) -> PartLimits:
        """What its parts allow."""

    def check(self, queries: Described, matrix: Described) -> None:  # noqa: B027
        """Raise ``InvalidInput`` where rows like these cannot give what is asked for; most modes take any."""

    @abstractmethod
    def check_room(
        self,
        queries: Described,
        matrix: Described,
        folders: Folders,
        scratch: Path,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """Check that the head's disks have room for the result, for the record, and for what is merged.

        What lies among the records already counts as free: finished blocks of this request are not written again, those
        of other requests are removed before anything is written.

        Raises:
            NoRoom: A disk has too little room.
        """

    def is_worth_keeping(self, matrix: Described, slots: int, writers: int = 1) -> bool:
        """Whether another run has a part sooner from its record than by computing it.

        Most parts are small beside the work in them.

        Args:
            matrix: The rows among which neighbors are looked for.
            slots: Tasks that the cluster runs at once.
            writers: Instances that keep parts, each on its own disk.
        """
        return True

    def record(self, run: Run, kind: str) -> BlockRecord[Any]:
        """Return where finished tasks are kept."""
        return run.record(kind)

    def tiles(self, sizing: Sizing, record: BlockRecord[Any], *, self_join: bool) -> list[FreeTile]:
        """Return the tiles of rows that lie whole everywhere, in the order in which they are to be dispatched."""
        if self_join:
            # The record may know a size that an earlier run chose: its parts are of use only to tiles of the same size.
            cuts = tiling.triangle(sizing.matrix.rows, sizing.triangle_rows(record))
        else:
            block_rows = sizing.rectangle_rows(record)
            cuts = tiling.rectangle(sizing.queries.rows, sizing.matrix.rows, *block_rows)
        return [FreeTile(cut, self_join) for cut in cuts]

    @abstractmethod
    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Do one task, where the rows of its tile can be read; return what the head takes in."""

    @abstractmethod
    def collect(self, run: Run, tiles: Tiling, record: BlockRecord[Any], sizing: Sizing) -> Collector:
        """Begin to take in parts."""

    def groups(self, run: Run, tiles: Sequence[FreeTile], record: BlockRecord[Any], sizing: Sizing) -> Any | None:
        """Return how parts of many tiles are merged on the instances; None: each goes to the head."""
        return None

    def owned(self, run: Run, tiles: Tiling, sizing: Sizing) -> Owned | None:
        """Return how instances own ranges of its result; None: it is the head's alone."""
        return None

    def probe(
        self, context: Context, both: TileBlock, scratch: Path, seconds: Callable[[Callable[[], object]], float]
    ) -> tuple[float, float, float]:
        """Measure a tile of the diagonal, one beside it, and taking in the part of that one, as most of a run has them.

        Args:
            context: Of two blocks of rows.
            both: The tile of the first block with the second.
            scratch: Folder for what is merged.
            seconds: Measures a call.
        """
        # Both kinds, since the diagonal's tile has half the pairs, and another share of a small matrix.
        whole = TileBlock(both.rows, both.rows)
        diagonal, beside = (FreeTile(tile, context.self_join, self.probe_hint(tile)) for tile in (whole, both))
        # 0 s to take it in: only top-k merges while tasks run; what the full matrix costs there, the model adds itself.
        return seconds(lambda: self.compare(context, diagonal)), seconds(lambda: self.compare(context, beside)), 0.0

    def probe_hint(self, tile: TileBlock) -> Any:
        """Return what a task that is measured is told."""
        return None

    @abstractmethod
    def gathering_seconds(self, matrix: Matrix, scratch: Path, sizing: Sizing) -> float:
        """Measure, on a part of it, how long one disk takes for the whole result."""

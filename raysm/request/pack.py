"""Several rows of a grid in one job: the same script once for each, as tasks of Ray, each with its own arguments.

What flows in are the rows as the grid has filled them, what flows out is frozen data that travels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from raysm.errors import InvalidRequest
from raysm.request.options import decides
from raysm.request.programs import ScriptWorkload
from raysm.request.workload import Parameters

__all__ = ["Pack", "PackedRow"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """What is one row's own."""

    key: str
    """The user's name of it."""
    name: str
    """Of its folder, and of its entry in the record: no two of a pack are alike."""
    args: tuple[str, ...] = ()
    """Of the script, for this row."""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    """Beside those of the job."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside that of the job."""
    max_runtime_s: int
    """Seconds after which it is ended, and has failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack(ScriptWorkload):
    """A script, run once for each row, as many at a time as the instances have room for; a row that fails, fails alone.

    A grid makes it of its rows (``Rules(pack=…)``); nobody has to write one.

    Raises:
        InvalidRequest: There is no row, or two have one name.
    """

    runner: ClassVar[str] = "raysm.workloads.runners.pack:PackRunner"
    label: ClassVar[str] = "the rows that share a job"
    keeps: ClassVar[str] = "the record of its rows; their files lie among the checkpoints, a folder for each"

    rows: tuple[PackedRow, ...]
    """In the order in which they begin."""
    cpus: float = field(default=1.0, metadata=decides(result=False))
    """CPUs of each row, above 0."""
    gpus: float | None = None
    """GPUs of each row; None is one where an instance has any, else none."""

    def __post_init__(self) -> None:
        """Check the fields."""
        ScriptWorkload.__post_init__(self)  # super() would look for the class that slots=True has replaced
        if not self.rows:
            raise InvalidRequest("Pack: there is no row")
        # Checked here too, though a grid never makes it: a request may come from a file that somebody wrote.
        names = [row.name for row in self.rows]
        # A second one would write into the first one's folder.
        if len(set(names)) < len(names):
            raise InvalidRequest("Pack: two rows have one name")
        if self.cpus <= 0 or (self.gpus or 0) < 0:
            raise InvalidRequest(f"Pack: cpus is above 0 and gpus not negative, got {self.cpus} and {self.gpus}")

    @property
    def parameters(self) -> Parameters:
        """How many rows: what each of them tries stands with the grid."""
        return {"rows": len(self.rows)}

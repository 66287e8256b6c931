"""What the head of a pack knows of its rows, on its disk: outcomes flow in, a record that the grid reads flows out.

A job that was interrupted finds it among its checkpoints, with the files of the rows that were done.
"""

from collections.abc import Mapping
from pathlib import Path

from raysm.contract.result import ROW_RECORD, RowOutcome, confirmed, outcomes_in, outcomes_text
from raysm.contract.store import put
from raysm.workloads.pack.row import sizes_below

__all__ = ["RowRecord"]


class RowRecord:
    """The record of one pack.

    Attributes:
        outcomes: Of the rows that were begun, by their names.
    """

    def __init__(self, folder: Path) -> None:
        """Read what an earlier run has left in ``folder``, or begin.

        Args:
            folder: Of the record, and of the rows' own folders.
        """
        self._path = folder / ROW_RECORD
        # Brought with the other checkpoints, before the first program of an instance began.
        text = self._path.read_bytes() if self._path.is_file() else b""
        recorded = outcomes_in(text)
        sizes = {f"{name}/{file}": size for name in recorded for file, size in sizes_below(folder / name)}
        # Only what is here: files of an instance that died may not have come to S3.
        outcomes = confirmed(recorded, sizes)
        self.outcomes = {name: outcome for name, outcome in outcomes.items() if outcome.state != "running"}

    def begin(self, name: str) -> None:
        """Take note that a row is begun: if it ends the job, the grid knows whom to suspect."""
        self._keep({name: RowOutcome(state="running")})

    def end(self, name: str, outcome: RowOutcome) -> None:
        """Take note of how a row ended."""
        self._keep({name: outcome})

    def _keep(self, changes: Mapping[str, RowOutcome]) -> None:
        self.outcomes |= changes
        # Whole each time: who reads it from afar makes one call, and sees one moment.
        put(self._path, outcomes_text(self.outcomes))

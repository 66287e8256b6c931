"""The source of a channel's rows: each task finds and maps them on its own instance."""

import functools
from dataclasses import dataclass
from pathlib import Path

from raysm.bootstrap import environment
from raysm.workloads.file_names import data_files
from raysm.workloads.similarity.reading.columns import NO_SELECTION, Features, Selection
from raysm.workloads.similarity.reading.files import features, matrix_files
from raysm.workloads.similarity.reading.matrix import Matrix, open_matrix


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one instance."""

    channel: Path
    scratch: Path
    """Folder for what has to be converted."""
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The matrix, as every task finds it on its own instance."""

    channel: str
    selection: Selection = NO_SELECTION
    expected: Features | None = None
    """Features in the order in which all files have them; None is that of the first file with names."""
    sharded: bool = False
    """Each instance has its share of the files alone."""
    place: Place | None = None
    """Its folders; None asks the instance's own environment, as jobs do."""

    def here(self) -> Place:
        """Return where this instance has it."""
        if self.place is not None:
            return self.place
        instance = environment.read()
        paths = instance.paths
        return Place(paths.channel(self.channel), paths.scratch / self.channel, instance.current_host)

    def open(self, place: Place | None = None) -> Matrix:
        """Map the matrix of this instance, at ``place`` where that is known already; a process maps it once."""
        return _open(place or self.here(), self.selection, self.expected, is_share=self.sharded)

    def features(self) -> Features | None:
        """Return the features of this instance's files, as ``files.features`` does; None if they have no names."""
        return features(matrix_files(self.here().channel), self.selection) if self.has_files() else None

    def has_files(self) -> bool:
        """Return whether this instance has any: of a sharded channel, some may have got none."""
        folder = self.here().channel
        # Not by matrix_files, to which a folder without files is an error.
        return bool(data_files(folder))


# Two: the matrix, and the queries that look into it.
@functools.lru_cache(maxsize=2)
def _open(place: Place, selection: Selection, expected: Features | None, *, is_share: bool) -> Matrix:
    return open_matrix(place.channel, place.scratch, selection, expected=expected, is_share=is_share)

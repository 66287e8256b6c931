"""A mode is one class and one line: here, how many rows each row resembles, which no mode of raysm's tells."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from raysm.contract.result import ResultFile
from raysm.request import Similarity
from raysm.workloads.similarity import modes
from raysm.workloads.similarity.modes import mode_of
from raysm.workloads.similarity.modes.full import Full, full_tile
from raysm.workloads.similarity.modes.mode import Mode, RangeMerger
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.run import run
from raysm.workloads.similarity.runs import Folders
from raysm.workloads.similarity.sizing import PartLimits
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows
from tests.support.similarity import saved

pytestmark = pytest.mark.smoke

ROWS = kinds_of_rows(rows=200)["float32"]


@dataclass(frozen=True)
class Degrees(Mode):
    """How many others each row resembles."""

    name: ClassVar[str] = "degrees"
    least: float

    @classmethod
    def asked_by(cls, workload):
        return cls(workload.threshold) if workload.id_column == "degrees" else None

    @property
    def limits(self):
        return PartLimits(rows=50)

    def compare(self, context, task):
        near = full_tile(context, "float32", task.tile) >= np.float32(self.least)
        return {"rows": near.sum(axis=1), "columns": near.sum(axis=0)}

    def split(self, task, arrays, ranges):
        starts, degrees = [task.tile.rows.start], [arrays["rows"]]
        if task.mirrored:
            starts, degrees = [*starts, task.tile.columns.start], [*degrees, arrays["columns"]]
        yield 0, {"starts": np.array(starts), "degrees": np.stack(degrees)}

    def merger(self, owned, folder, scratch, record):
        return Counting(owned, folder)


class Counting(RangeMerger):
    def __init__(self, owned, folder):
        self.folder, self.degrees = folder, np.full(owned.rows.rows, -1)

    def take(self, name, piece):
        for start, degrees in zip(piece["starts"].tolist(), piece["degrees"], strict=True):
            self.degrees[start : start + len(degrees)] += degrees

    def write(self, ids, on_rows):
        np.save(self.folder / "degrees.npy", self.degrees)
        return ResultFile(
            name="degrees.npy", shape=self.degrees.shape, units=("rows",), bytes=0, sha256="", how_to_read=""
        )


@pytest.fixture
def registered():
    modes.MODES.insert(0, Degrees)
    yield
    modes.MODES.remove(Degrees)


def test_a_new_mode_is_one_class_and_one_line(registered, ray_here, tmp_path):
    folders = Folders(result=tmp_path / "result", records=tmp_path / "records")
    asked = Similarity(threshold=0.3, id_column="degrees")
    manifest = run(asked, job="job", source=saved(ROWS, tmp_path), folders=folders, emit_event=lambda event: None)
    assert [file.name for file in manifest.files] == ["degrees.npy"]
    # 200 rows are ten tiles of the triangle of four blocks.
    assert manifest.measures["blocks"] == 10
    expected = (score_rows(ROWS, range(200)) >= np.float32(0.3)).sum(axis=1) - 1
    assert np.load(tmp_path / "result" / "degrees.npy").tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("workload", "mode"),
    [
        (Similarity(top_k=3), TopK(3)),
        (Similarity(threshold=0.5), Threshold(np.float32(0.5))),
        (Similarity(full=True, dtype="float16"), Full("float16")),
    ],
)
def test_a_request_is_given_to_the_mode_that_it_asks_for(workload, mode):
    assert mode_of(workload) == mode

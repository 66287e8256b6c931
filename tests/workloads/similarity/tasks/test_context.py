import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.layouts.shards import report
from raysm.workloads.similarity.reading.matrix import Place, Source
from raysm.workloads.similarity.tasks.context import RowShape
from tests.support.similarity import saved


def shape(source, rows, ranges=None):
    return RowShape(source=source, rows=rows, columns=2, dtype=np.dtype(np.float64), ranges=ranges)


def test_an_instance_with_another_matrix_is_named(tmp_path):
    source = saved(np.ones((5, 2)), tmp_path)
    with pytest.raises(InvalidInput, match=r"the matrix on algo-1 has the shape \(5, 2\), on the head \(6, 2\)"):
        shape(source, 6).open()


def test_an_instance_whose_share_has_changed_is_named(tmp_path):
    source = saved(np.ones((5, 2)), tmp_path)
    with pytest.raises(InvalidInput, match="algo-1 has 5 rows, and had 4: its files changed while the job ran"):
        shape(source, 9, {"algo-1": RowBlock(3, 7)}).open()


def test_an_instance_whose_files_have_no_rows_reports_them_and_has_none_to_read(tmp_path):
    (tmp_path / "share").mkdir()
    np.save(tmp_path / "share" / "part-3.npy", np.empty((0, 2)))
    source = Source(channel="matrix", sharded=True, place=Place(tmp_path / "share", tmp_path, "algo-3"))
    assert [(file.name, file.rows, file.columns) for file in report(source).files] == [("part-3.npy", 0, 2)]
    assert shape(source, 9, {"algo-1": RowBlock(0, 9)}).open().some(10) is None

"""What a task does with a pair of chunks, of which one came from another instance."""

from types import SimpleNamespace

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.layouts.rotation import portion
from tests.support.dense_rows import kinds_of_rows
from tests.support.similarity import saved

KINDS = kinds_of_rows(rows=90)


def test_a_portion_is_pickled_without_the_rows_beside_it(tmp_path):
    source = saved(KINDS["float32"], tmp_path)
    some = portion(source, SimpleNamespace(start=10, stop=30), np.dtype(np.float64))
    assert (some.rows, some.dtype) == (20, np.float64)
    np.testing.assert_array_equal(some.read(0, 20), KINDS["float32"][10:30].astype(np.float64))


def test_rows_that_went_away_while_the_job_ran_are_told_with_the_instance(tmp_path):
    source = saved(KINDS["float32"], tmp_path)
    with pytest.raises(InvalidInput, match="algo-3 has 90 rows, and had more: its files changed while the job ran"):
        portion(source, SimpleNamespace(start=80, stop=91, host="algo-3"), np.dtype(np.float32))

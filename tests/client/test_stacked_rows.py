"""Arrays of several files as one, indexed as NumPy would."""

import numpy as np
import pytest

from raysm.client.results.similarity import StackedRows


@pytest.fixture
def stacked(tmp_path):
    """Ten rows in three files, and the same as one array."""
    everything = np.arange(70, dtype=np.float32).reshape(10, 7)
    paths = [tmp_path / f"{at}.npy" for at in range(3)]
    for path, part in zip(paths, np.split(everything, [3, 4]), strict=True):
        np.save(path, part)
    return StackedRows.of_files(paths), everything


def test_it_has_the_shape_of_all_together(stacked):
    rows, everything = stacked
    assert (rows.shape, rows.dtype, rows.ndim, len(rows)) == ((10, 7), np.float32, 2, 10)
    assert np.array_equal(np.asarray(rows), everything)
    assert all(isinstance(part, np.memmap) for part in rows.parts)
    assert repr(rows) == "<10 x 7 float32 in 3 files>"


@pytest.mark.parametrize(
    "key",
    [
        *(3, -1, np.int64(4), (5, 2)),
        *(slice(2, 8, 2), slice(4, 4), (slice(None), 3), (slice(1, 5), slice(0, 4)), (slice(0, 3), -1)),
        [9, 0, 3, 0],
    ],
)
def test_rows_are_those_that_numpy_would_give(stacked, key):
    rows, everything = stacked
    found = rows[key]
    assert np.array_equal(found, everything[key])
    assert np.shape(found) == np.shape(everything[key])


def test_a_mask_of_rows_is_one_of_numpys(stacked):
    rows, everything = stacked
    mask = everything[:, 0] % 2 == 0
    assert np.array_equal(rows[mask], everything[mask])


def test_rows_and_columns_that_are_not_there_are_refused(stacked):
    table = stacked[0]
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        table[10]
    with pytest.raises(IndexError, match=r"by a number or a slice, not by \[1, 2\]"):
        table[3, [1, 2]]
    with pytest.raises(ValueError, match="only as a copy"):
        np.asarray(table, copy=False)

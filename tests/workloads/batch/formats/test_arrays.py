"""Rows of arrays as records."""

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.arrays import Npy


def test_rows_of_any_shape_come_with_their_numbers(tmp_path):
    array = np.arange(5 * 2 * 3).reshape(5, 2, 3)
    np.save(tmp_path / "a.npy", array)
    spans = Npy().cut(tmp_path, ["a.npy"], 3)
    assert [(span.start, span.stop, span.rows) for span in spans] == [(0, 3, 3), (3, 5, 2)]
    batches = [batch for span in spans for batch in Npy().batches(tmp_path, span, 2, 1)]
    assert [len(batch["values"]) for batch in batches] == [2, 1, 2]
    np.testing.assert_array_equal(np.concatenate([batch["values"] for batch in batches]), array)
    assert [row for batch in batches for row in batch["row"]] == list(range(5))
    # A predictor may work in place; the file stays as it was.
    batches[0]["values"][:] = -1
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize(
    ("array", "message"), [(np.array(3.0), "holds one number"), (np.array([{}]), "cannot be read")]
)
def test_what_has_no_rows_is_named(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InvalidInput, match=message):
        Npy().cut(tmp_path, ["a.npy"], 3)

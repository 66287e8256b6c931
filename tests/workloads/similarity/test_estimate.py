"""How long a similarity takes, by rates that are measured here and by rates that are given."""

import numpy as np
import pytest
import scipy.sparse

from raysm.errors import RaysmError
from raysm.request import Similarity
from raysm.workloads.similarity.estimate import Rates, estimate, predict
from tests.support.similarity import saved

RATES = Rates(engine="an engine", rows=1e6, pairs=1e8)


def measured(path, workload):
    return estimate(path, workload, 2, processes=1, min_s=0.01)


@pytest.mark.parametrize("workload", [{"top_k": 3}, {"full": True}])
def test_a_few_tiles_of_the_matrix_itself_are_measured(workload, tmp_path):
    source = saved(np.random.default_rng(0).standard_normal((900, 16)), tmp_path)
    found = measured(source.place.channel, Similarity(**workload))
    assert found.engine
    assert list(found.phases_s) == ["prepare", "similarity", "gathering"]
    assert 0 < found.phases_s["similarity"] < 10


def test_sparse_rows_are_measured_by_their_elements(tmp_path):
    path = tmp_path / "m.npz"
    scipy.sparse.save_npz(path, scipy.sparse.random(4000, 3000, 0.002, format="csr", random_state=0))
    assert "sparse" in measured(path, Similarity(top_k=3)).engine


def test_a_matrix_that_cannot_be_measured_says_why(tmp_path):
    rows = np.ones((900, 16))
    rows[3, 3] = np.nan
    source = saved(rows, tmp_path)
    with pytest.raises(RaysmError, match=r"tiles of matrix.npy could not be measured: .*row 3 of the matrix"):
        measured(source.place.channel, Similarity(top_k=3))


def test_the_work_is_multiplied_with_the_rates(tmp_path):
    matrix = saved(np.ones((20_000, 4), dtype=np.float32), tmp_path).open()
    one, eight = (predict(Similarity(top_k=3), matrix, RATES, slots) for slots in (1, 8))
    assert one.phases_s["prepare"] == pytest.approx(0.02)
    assert one.phases_s["similarity"] == pytest.approx(20_000**2 / 2 / 1e8)
    assert one.phases_s["similarity"] == pytest.approx(8 * eight.phases_s["similarity"])
    # Of strips each pair is computed twice; the file takes the disk as long as it takes.
    full = predict(Similarity(full=True), matrix, RATES, 1)
    assert full.phases_s["similarity"] == pytest.approx(max(2 * one.phases_s["similarity"], 1.6e9 / 250e6))
    shared_out = predict(Similarity(top_k=3), matrix, RATES, 8, 4, shared_out=True)
    assert shared_out.coming_bytes == matrix.nbytes / 2

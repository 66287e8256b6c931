import numpy as np
import pytest
import scipy.sparse

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.arrays import archive_shape, extract_archive, is_sparse_archive

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def dense(tmp_path):
    np.savez_compressed(tmp_path / "dense.npz", rows=ROWS)
    return tmp_path / "dense.npz"


@pytest.fixture
def sparse(tmp_path):
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_matrix(ROWS))
    return tmp_path / "sparse.npz"


def test_the_shape_is_told_without_any_row(dense, sparse):
    assert [is_sparse_archive(path) for path in (dense, sparse)] == [False, True]
    assert [archive_shape(path) for path in (dense, sparse)] == [(4, 3), (4, 3)]


def test_what_is_extracted_is_mapped_as_arrays(dense, sparse, tmp_path):
    for name, path in (("dense", dense), ("sparse", sparse)):
        (tmp_path / name).mkdir()
        extract_archive(path, tmp_path / name)
    np.testing.assert_array_equal(np.load(tmp_path / "dense" / "rows.npy"), ROWS)
    data, indices, indptr, size = (
        np.load(tmp_path / "sparse" / f"{name}.npy") for name in ("data", "indices", "indptr", "shape")
    )
    np.testing.assert_array_equal(scipy.sparse.csr_matrix((data, indices, indptr), tuple(size)).toarray(), ROWS)


def test_other_sparse_formats_and_several_arrays_are_refused_with_the_remedy(tmp_path):
    scipy.sparse.save_npz(tmp_path / "csc.npz", scipy.sparse.csc_matrix(ROWS))
    with pytest.raises(InvalidInput, match=r"format 'csc'; convert it with .tocsr\(\)"):
        archive_shape(tmp_path / "csc.npz")
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS)
    with pytest.raises(InvalidInput, match="exactly one array.* it holds a, b"):
        archive_shape(tmp_path / "two.npz")


def test_an_index_outside_the_columns_is_refused_before_anything_is_computed(tmp_path):
    csr = scipy.sparse.csr_matrix(ROWS)
    np.savez(
        tmp_path / "bad.npz",
        format=b"csr",
        shape=np.array([4, 3]),
        data=csr.data,
        indices=csr.indices + 1,
        indptr=csr.indptr,
    )
    with pytest.raises(InvalidInput, match="a column index is outside 0 to 2"):
        extract_archive(tmp_path / "bad.npz", tmp_path)

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse

from raysm.request import Similarity
from raysm.workloads.similarity.reading.matrix import Place, Source
from raysm.workloads.similarity.run import run
from raysm.workloads.similarity.runs import Folders
from tests.support.reference import neighbors, pairs, score_rows


def made(rows, columns, share, seed=0):
    rng = np.random.default_rng(seed)
    matrix = scipy.sparse.random(rows, columns, density=share, format="csr", random_state=rng, dtype=np.float32)
    matrix.data = rng.standard_normal(matrix.nnz).astype(np.float32)
    return matrix


def saved(folder, **matrices):
    """Save each as the files of one channel."""
    folder.mkdir(parents=True)
    for name, matrix in matrices.items():
        scipy.sparse.save_npz(folder / f"{name}.npz", matrix)
    return Source(channel=folder.name, place=Place(folder, folder.with_name(f"{folder.name}-scratch"), "algo-1"))


def go(source, folder, queries=None, **workload):
    folders = Folders(result=folder / "result", records=folder / "records")
    return run(
        Similarity(**workload),
        job="job",
        source=source,
        folders=folders,
        emit_event=lambda event: None,
        queries=queries,
    )


def test_a_sparse_matrix_is_compared_by_its_elements(ray_here, tmp_path):
    # Two files of different types are one matrix; row 5 has no elements.
    first, second = made(200, 900, 0.01), made(130, 900, 0.01, seed=1).astype(np.float64)
    first.data[first.indptr[5] : first.indptr[6]] = 0
    rows = np.concatenate([first.toarray().astype(np.float64), second.toarray()])
    source = saved(tmp_path / "matrix", part_1=first, part_2=second)
    manifest = go(source, tmp_path / "top", top_k=6, block_rows=70)
    assert manifest.engines == ("float32 sparse",)
    assert manifest.inputs["matrix"]["sparse"]
    table = pq.read_table(tmp_path / "top" / "result" / "neighbors.parquet")
    expected = neighbors(rows, 6)
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1])
    go(source, tmp_path / "pairs", threshold=0.4)
    found = pq.read_table(tmp_path / "pairs" / "result" / "pairs.parquet").to_pydict().values()
    assert [(i, j, np.float32(s)) for i, j, s in zip(*found, strict=True)] == pairs(rows, 0.4)
    go(source, tmp_path / "full", full=True, block_rows=100)
    assert np.array_equal(np.load(tmp_path / "full" / "result" / "similarity.npy"), score_rows(rows, range(330)))


def test_ranges_of_sparse_rows_hold_the_rows_of_their_full_matrix(ray_here, tmp_path):
    matrix = made(330, 900, 0.01)
    manifest = go(saved(tmp_path / "matrix", all=matrix), tmp_path, full=True, parts=3, block_rows=70)
    assert manifest.engines == ("float32 sparse",)
    parts = [np.load(tmp_path / "result" / file.name) for file in manifest.files]
    assert [len(part) for part in parts] == [110, 110, 110]
    assert np.array_equal(np.concatenate(parts), score_rows(matrix.toarray().astype(np.float64), range(330)))


def test_what_is_dense_in_truth_is_compared_by_dense_products(ray_here, tmp_path):
    matrix = made(120, 40, 0.5)
    manifest = go(saved(tmp_path / "matrix", all=matrix), tmp_path, top_k=3)
    assert "sparse" not in manifest.engines[0]
    found = pq.read_table(tmp_path / "result" / "neighbors.parquet")["neighbors"].to_pylist()
    assert np.array_equal(found, neighbors(matrix.toarray(), 3)[0])

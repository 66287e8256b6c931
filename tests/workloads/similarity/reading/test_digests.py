import hashlib

import numpy as np

from raysm.workloads.similarity.reading.files import digest


def test_the_digest_of_one_file_is_that_of_its_bytes(tmp_path):
    path = tmp_path / "m.npy"
    path.write_bytes(b"rows")
    assert digest(path).result(timeout=90) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_digest_of_a_folder_depends_on_names_and_bytes(tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    np.save(folder / "a.npy", np.eye(3))
    np.save(folder / "b.npy", np.eye(3))
    first = digest(folder).result(timeout=90)
    (folder / "b.npy").rename(folder / "c.npy")
    assert digest(folder).result(timeout=90) != first

import hashlib

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading import digests
from raysm.workloads.similarity.reading.digests import digest_of


def test_the_digest_of_one_file_is_that_of_its_bytes(tmp_path):
    path = tmp_path / "m.npy"
    path.write_bytes(b"rows")
    assert digest_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_digest_of_a_folder_depends_on_names_and_bytes(tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    np.save(folder / "a.npy", np.eye(3))
    np.save(folder / "b.npy", np.eye(3))
    first = digest_of(folder)
    (folder / "b.npy").rename(folder / "c.npy")
    assert digest_of(folder) != first


def test_what_was_begun_is_what_is_asked_for_and_only_once(tmp_path):
    path = tmp_path / "m.npy"
    path.write_bytes(b"first")
    digests.begin(path)
    begun = digests._started[path]
    assert begun.result(timeout=90) == hashlib.sha256(b"first").hexdigest()
    assert digests.digest(path) is begun
    path.write_bytes(b"second")
    assert digests.digest(path).result(timeout=90) == hashlib.sha256(b"second").hexdigest()


def test_a_file_that_cannot_be_read_says_so_to_who_asks(tmp_path):
    digests.begin(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="does not exist"):
        digests.digest(tmp_path / "nothing").result(timeout=90)

"""``.npy`` files: what their headers say, and mapped wherever they lie."""

import errno
import mmap
import os

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.npy import (
    ArrayLayout,
    RowWriter,
    Unmappable,
    map_array,
    read_layout,
    write_array,
)

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def refusing(*refused):
    """Return what maps as a file system does that has not these kinds of mappings."""

    def map_pages(descriptor, length, *, flags, prot):
        if flags in refused:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return mmap.mmap(descriptor, length, flags=flags, prot=prot)

    return map_pages


@pytest.fixture
def saved(tmp_path):
    np.save(tmp_path / "m.npy", ROWS)
    return tmp_path / "m.npy"


def test_a_layout_is_read_without_the_elements(saved):
    assert read_layout(saved) == ArrayLayout((4, 3), np.dtype("<f4"), False, 128)


def test_an_array_is_mapped_as_it_lies_and_cannot_be_written(saved, tmp_path):
    mapped = map_array(saved)
    np.testing.assert_array_equal(mapped, ROWS)
    assert not mapped.flags.writeable
    np.save(tmp_path / "f.npy", np.asfortranarray(ROWS))
    assert map_array(tmp_path / "f.npy").flags.f_contiguous


def test_without_shared_mappings_a_private_one_is_taken(saved):
    mapped = map_array(saved, map_pages=refusing(mmap.MAP_SHARED))
    np.testing.assert_array_equal(mapped, ROWS)
    assert not mapped.flags.writeable


def test_without_any_mapping_it_is_said_with_the_remedy(saved):
    with pytest.raises(Unmappable, match="m.npy lies where no file can be mapped.*read as File"):
        map_array(saved, map_pages=refusing(mmap.MAP_SHARED, mmap.MAP_PRIVATE))


def test_an_array_without_elements_is_there_though_nothing_can_be_mapped(tmp_path):
    np.save(tmp_path / "m.npy", np.empty((0, 3), np.float32))
    assert map_array(tmp_path / "m.npy").shape == (0, 3)


def test_a_file_that_is_shorter_than_its_header_says_is_torn(saved):
    saved.write_bytes(saved.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match="torn.*need 48 bytes of data, it has 47"):
        map_array(saved)


def test_rows_are_written_one_batch_after_the_other_and_arrays_in_this_machines_order(tmp_path):
    with RowWriter(tmp_path / "r.npy", 3, np.dtype(">f4")) as writer:
        writer.write(ROWS[:1])
        writer.write(ROWS[1:])
    write_array(tmp_path / "w.npy", np.asfortranarray(ROWS).astype(">f4"), 3)
    for name in ("r.npy", "w.npy"):
        np.testing.assert_array_equal(np.load(tmp_path / name), ROWS)
        assert np.load(tmp_path / name).dtype.isnative

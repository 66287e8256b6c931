"""``.npy`` files: what their headers say, and mapped wherever they lie."""

import errno
import io
import mmap
import os
import struct

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.arrays import (
    HEADER_BYTES,
    ArrayLayout,
    RowWriter,
    Unmappable,
    header,
    map_array,
    read_header,
    read_layout,
    write_array,
)

TYPES = ["f2", "f4", "f8", "i1", "u2", "i8", "?", ">f4"]

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
    with pytest.raises(Unmappable, match="m.npy is on a file system that cannot map files.*use the input mode File"):
        map_array(saved, map_pages=refusing(mmap.MAP_SHARED, mmap.MAP_PRIVATE))


def test_an_array_without_elements_is_there_though_nothing_can_be_mapped(tmp_path):
    np.save(tmp_path / "m.npy", np.empty((0, 3), np.float32))
    assert map_array(tmp_path / "m.npy").shape == (0, 3)


def test_a_file_that_is_shorter_than_its_header_says_is_torn(saved):
    saved.write_bytes(saved.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match="truncated.*need 48 bytes, it has 47"):
        map_array(saved)


def with_header(text, version=1, data=b""):
    encoded = text.encode("utf-8" if version == 3 else "latin1")
    size = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes([version, 0]) + size + encoded + data


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_writes_is_mapped_as_it_is(tmp_path, dtype, order):
    matrix = np.asarray(np.arange(12).reshape(3, 4) % 2, dtype=dtype, order=order)
    np.save(tmp_path / "m.npy", matrix)
    mapped = map_array(tmp_path / "m.npy")
    np.testing.assert_array_equal(mapped, matrix)
    assert (mapped.dtype, type(mapped), mapped.flags.writeable) == (matrix.dtype, np.ndarray, False)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_headers_of_every_version_are_read(version):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ones((2, 3), dtype=np.float32), version=version)
    stream.seek(0)
    assert read_header(stream, "m.npy") == ((2, 3), np.dtype(np.float32), False)
    assert stream.read() == np.ones((2, 3), dtype=np.float32).tobytes()


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4"])
def test_rows_that_are_written_one_after_the_other_are_read_by_numpy(tmp_path, dtype):
    rows = np.arange(30).reshape(10, 3).astype(dtype)
    with RowWriter(tmp_path / "m.npy", 3, np.dtype(dtype)) as writer:
        for some in (rows[:4], rows[4:4], rows[4:]):
            writer.write(some)
    loaded = np.load(tmp_path / "m.npy", allow_pickle=False)
    np.testing.assert_array_equal(loaded, rows)
    assert (tmp_path / "m.npy").stat().st_size == HEADER_BYTES + rows.nbytes


@pytest.mark.parametrize("step", [1, 3, 100])
def test_an_array_of_any_order_and_byte_order_is_written_in_that_of_this_machine(tmp_path, step):
    array = np.asarray(np.arange(35).reshape(7, 5), dtype=">f4", order="F")
    write_array(tmp_path / "m.npy", array, step)
    loaded = np.load(tmp_path / "m.npy")
    np.testing.assert_array_equal(loaded, array)
    assert (loaded.dtype.isnative, loaded.flags.c_contiguous) == (True, True)


def test_every_header_has_the_same_size():
    assert {len(header(shape, np.dtype("f4"))) for shape in ((0, 1), (10**12, 10**6))} == {HEADER_BYTES}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"row,1\n", "does not begin with the .npy signature"),
        (b"\x93NUMPY\x09\x00", "does not begin with the .npy signature"),
        (b"\x93NUMPY\x01\x00\x10", "its header is truncated"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "its header is truncated"),
        (with_header("{'descr': '<f4'}"), "its header cannot be read"),
        (with_header("__import__('os').getcwd()"), "its header cannot be read"),
        (with_header("(" * 5000), "its header cannot be read"),
        (with_header("{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}"), "which raysm never unpickles"),
        (with_header("{'descr': '<c8', 'fortran_order': False, 'shape': (1, 1)}"), "holds complex64"),
        (with_header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1, 1)}"), "a matrix is of float16"),
        (with_header("{'descr': '<f4', 'fortran_order': 'False', 'shape': (1, 1)}"), "neither True nor False"),
        (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 1)}"), "not a tuple of non-negative"),
        (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"), "any memory"),
        (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", data=bytes(16)), "expected 2 dim"),
        (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", data=bytes(15)), "need 16 bytes"),
    ],
)
def test_what_is_no_matrix_is_refused_in_one_line_with_its_name(tmp_path, content, words):
    (tmp_path / "m.npy").write_bytes(content)
    with pytest.raises(InvalidInput, match="m.npy") as raised:
        map_array(tmp_path / "m.npy")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)

"""``.npy`` files: what their headers say, and mapped wherever they lie."""

import io
import struct

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.arrays import (
    HEADER_BYTES,
    RowWriter,
    map_array,
    read_header,
    write_array,
)


def test_an_array_without_elements_is_there_though_nothing_can_be_mapped(tmp_path):
    np.save(tmp_path / "m.npy", np.empty((0, 3), np.float32))
    assert map_array(tmp_path / "m.npy").shape == (0, 3)


def with_header(text, version=1, data=b""):
    encoded = text.encode("utf-8" if version == 3 else "latin1")
    size = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes([version, 0]) + size + encoded + data


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_headers_of_every_version_are_read(version):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ones((2, 3), dtype=np.float32), version=version)
    stream.seek(0)
    layout = read_header(stream, "m.npy")
    assert (layout.shape, layout.dtype, layout.fortran) == ((2, 3), np.float32, False)
    assert stream.getvalue()[layout.offset :] == np.ones((2, 3), dtype=np.float32).tobytes()


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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"row,1\n", "not a valid .npy file"),
        (b"\x93NUMPY\x09\x00", "not a valid .npy file"),
        (b"\x93NUMPY\x01\x00\x10", "not a valid .npy file"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "not a valid .npy file"),
        (with_header("{'descr': '<f4'}"), "not a valid .npy file"),
        (with_header("__import__('os').getcwd()"), "not a valid .npy file"),
        (with_header("(" * 5000), "not a valid .npy file"),
    ],
)
def test_what_is_no_matrix_is_refused_in_one_line_with_its_name(tmp_path, content, words):
    (tmp_path / "m.npy").write_bytes(content)
    with pytest.raises(InvalidInput, match="m.npy") as raised:
        map_array(tmp_path / "m.npy")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)

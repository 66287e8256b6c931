"""``.npy`` files: what their headers say, and mapped wherever they lie."""

import io
import struct

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.arrays import map_array, read_header, write_rows


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


@pytest.mark.parametrize("step", [1, 3, 100])
def test_rows_of_any_order_and_byte_order_are_written_in_those_of_this_machine(tmp_path, step):
    array = np.asarray(np.arange(35).reshape(7, 5), dtype=">f4", order="F")
    pieces = [array[:0], *(array[start : start + step] for start in range(0, 7, step))]
    write_rows(tmp_path / "m.npy", (5,), array.dtype, pieces)
    loaded = np.load(tmp_path / "m.npy")
    np.testing.assert_array_equal(loaded, array)
    assert (loaded.dtype.isnative, loaded.flags.c_contiguous) == (True, True)


@pytest.mark.parametrize(
    "content",
    [
        b"row,1\n",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        with_header("__import__('os').getcwd()"),
        with_header("(" * 5000),
    ],
)
def test_what_is_no_matrix_is_refused_in_one_line_with_its_name(tmp_path, content):
    (tmp_path / "m.npy").write_bytes(content)
    with pytest.raises(InvalidInput, match="m.npy") as raised:
        map_array(tmp_path / "m.npy")
    assert "not a valid .npy file" in str(raised.value)
    assert "\n" not in str(raised.value)

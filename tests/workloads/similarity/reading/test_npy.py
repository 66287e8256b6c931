"""``.npy`` files: what their headers say, and mapped wherever they lie."""

import struct

import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.arrays import map_array


def with_header(text, version=1, data=b""):
    encoded = text.encode("utf-8" if version == 3 else "latin1")
    size = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes([version, 0]) + size + encoded + data


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

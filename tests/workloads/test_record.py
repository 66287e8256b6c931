import errno

import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.workloads.record import BlockRecord
from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part

BLOCK = RowBlock(0, 10)


class FullDisk:
    """What is encoded, on a disk that is full when it is written: the second time that it is gone through."""

    def __init__(self, value):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        if self.passes == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return iter([b"value"])


def test_a_value_is_there_once_it_is_saved(tmp_path):
    record = BlockRecord(tmp_path / "r", {"a": 1})
    assert BLOCK not in record
    with pytest.raises(KeyError, match="rows 0 to 9"):
        record.load(BLOCK)
    record.save(BLOCK, {"x": [1, 2]})
    assert BLOCK in record
    assert BlockRecord(tmp_path / "r", {"a": 1}).load(BLOCK) == {"x": [1, 2]}
    assert RowBlock(0, 11) not in record


def test_a_changed_request_reuses_nothing_and_leaves_nothing(tmp_path):
    BlockRecord(tmp_path / "r", {"k": 1}).save(BLOCK, 1)
    assert BLOCK not in BlockRecord(tmp_path / "r", {"k": 2})
    assert BLOCK not in BlockRecord(tmp_path / "r", {"k": 1})


@pytest.mark.parametrize("damage", ["cut", "changed", "longer", "emptied"])
def test_a_torn_file_is_not_trusted(tmp_path, damage):
    record = BlockRecord(tmp_path / "r", {})
    record.save(BLOCK, list(range(100)))
    path = record.path(BLOCK)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1 if damage == "changed" else 0
    path.write_bytes({"cut": content[:-1], "longer": content + b"x", "emptied": b""}.get(damage, content))
    again = BlockRecord(tmp_path / "r", {})
    assert BLOCK not in again
    assert not path.exists()


def test_a_full_disk_is_said_with_the_block(tmp_path):
    record = BlockRecord(tmp_path / "r", {})
    with pytest.raises(NoRoom, match="became full while rows 0 to 9 was recorded"):
        BlockRecord(tmp_path / "r", {}, encode=FullDisk).save(BLOCK, 1)
    assert list(record.folder.iterdir()) == []


def test_arrays_come_back_as_views_of_the_mapped_file(tmp_path):
    arrays = {
        "keys": np.arange(12, dtype=np.uint64).reshape(4, 3),
        "none": np.empty((0, 3), dtype=np.float32),
        "half": np.ones((3, 1), dtype=np.float16),
        "flag": np.array(True),
    }
    part = Part(arrays=arrays, peaks={"algo-2": 7}, seconds=1.5, engines=("a",))
    record = BlockRecord(tmp_path / "r", {}, encode=encode_part, decode=decode_part)
    record.save(BLOCK, part)
    found = record.load(BLOCK, mapped_bytes=0)
    assert (found.peaks, found.seconds, found.engines) == ({"algo-2": 7}, 1.5, ("a",))
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert np.array_equal(found.arrays[name], array)
    assert not found.arrays["keys"].flags.owndata
    assert found.arrays["keys"].ctypes.data % 64 == 0

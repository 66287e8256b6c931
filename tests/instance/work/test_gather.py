import dataclasses
import errno
import hashlib
import io
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raysm
from raysm.core.protocol.result import MANIFEST
from raysm.core.request import Cluster, Input, JobRequest
from raysm.errors import InvalidInput, NoRoom
from raysm.features.similarity.cluster.tasks import Part, decode_part, encode_part
from raysm.instance.work.gather import ArrayFile, check_room, regroup
from raysm.instance.work.record import BlockRecord, occupied_bytes
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from raysm.instance.work.runner import write_manifest

pytestmark = pytest.mark.smoke


def test_room_is_checked_before_anything_is_written(tmp_path):
    with pytest.raises(NoRoom, match="0.05 GB .* 0.06 GB"):
        check_room(
            [(tmp_path / "later", 30_000_000), (tmp_path, 30_000_000)], free=lambda path: 50_000_000
        )
    assert check_room([(tmp_path, 30_000_000)], free=lambda path: 50_000_000) is None
    # Some room is left for the log and the manifest.
    with pytest.raises(NoRoom):
        check_room([(tmp_path, 30_000_000)], free=lambda path: 40_000_000)


def test_the_room_of_a_disk_is_what_it_has(tmp_path):
    assert check_room([(tmp_path, 1)]) is None
    with pytest.raises(NoRoom):
        check_room([(tmp_path, 1 << 60)])


def test_tiles_that_come_in_any_order_are_one_array_behind_its_header(tmp_path):
    values = np.arange(35.0).reshape(5, 7)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": values.shape}
    )
    file = ArrayFile(
        tmp_path / "later" / "full.npy", header.getvalue(), *values.shape, np.dtype("<f4")
    )
    tiles = [(0, 2, 4, 7), (3, 5, 0, 7), (2, 3, 0, 7), (0, 2, 0, 4)]
    for top, bottom, left, right in tiles:
        file.write(
            TileBlock(RowBlock(top, bottom), RowBlock(left, right)), values[top:bottom, left:right]
        )
    file.close()
    file.close()
    assert np.array_equal(np.load(file.path), values.astype("<f4"))


def test_an_array_of_which_nothing_is_written_yet_has_its_size_and_zeros(tmp_path):
    file = ArrayFile(tmp_path / "zeros", b"head", 3, 2, np.dtype("<f4"))
    file.close()
    assert file.path.read_bytes() == b"head" + bytes(3 * 2 * 4)


@given(sizes=st.lists(st.integers(0, 20), max_size=12), size=st.integers(1, 15))
def test_regrouping_keeps_the_order_and_depends_on_the_total_alone(sizes, size):
    values = np.arange(sum(sizes))
    cuts = np.cumsum([0, *sizes])
    chunks = ((values[a:b], -values[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True))
    groups = list(regroup(chunks, size))
    assert [len(group[0]) for group in groups[:-1]] == [size] * (len(groups) - 1)
    assert np.concatenate([[], *(group[0] for group in groups)]).tolist() == values.tolist()
    assert all(np.array_equal(group[0], -group[1]) for group in groups)
    assert all(len(group[0]) for group in groups)


REQUEST = JobRequest(
    name="a-job",
    workload=raysm.Script("main.py"),
    cluster=Cluster(),
    inputs={"images": Input("s3://bucket/images")},
)


def written(folder, **options):
    return write_manifest(
        REQUEST, folder, instances=("algo-1",), phases_s={"script": 1.23456}, **options
    )


def test_every_file_is_named_with_its_digest_and_how_it_is_read(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "rows.npy").write_bytes(b"rows")
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / ".torn.0123abcd.partial").write_bytes(b"x")
    manifest = written(tmp_path)
    files = {file.name: file for file in manifest.files}
    assert files["inner/rows.npy"].sha256 == hashlib.sha256(b"rows").hexdigest()
    assert 'numpy.load("inner/rows.npy"' in files["inner/rows.npy"].how_to_read
    assert files["notes.txt"].bytes == 0
    data = json.loads((tmp_path / MANIFEST).read_text())
    assert data["phases_s"] == {"script": 1.235}
    assert data["versions"]["raysm"] == raysm.__version__
    assert set(data["inputs"]) == {"images"}


def test_a_manifest_has_the_arguments_of_a_script_without_secrets(tmp_path):
    (tmp_path / "x").touch()
    script = raysm.Script("main.py", args=("--lr", "0.1", "--password", "12345678"))
    request = dataclasses.replace(REQUEST, workload=script)
    manifest = write_manifest(request, tmp_path, instances=("algo-1",), phases_s={})
    assert manifest.workload["args"] == ["--lr", "0.1", "--password", "***"]
    assert "12345678" not in (tmp_path / MANIFEST).read_text()


def test_an_empty_folder_and_a_users_own_manifest_get_none(tmp_path):
    assert written(tmp_path) is None
    (tmp_path / MANIFEST).write_text("mine")
    assert written(tmp_path) is None
    assert (tmp_path / MANIFEST).read_text() == "mine"


BLOCK = RowBlock(0, 10)


def json_record(folder, depends_on):
    return BlockRecord(
        folder, depends_on, encode=lambda value: [json.dumps(value).encode()], decode=from_json
    )


def from_json(data):
    return json.loads(bytes(data))


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
    record = json_record(tmp_path / "r", {"a": 1})
    assert BLOCK not in record
    with pytest.raises(KeyError, match="rows 0 to 9"):
        record.load(BLOCK)
    record.save(BLOCK, {"x": [1, 2]})
    assert BLOCK in record
    assert json_record(tmp_path / "r", {"a": 1}).load(BLOCK) == {"x": [1, 2]}
    assert RowBlock(0, 11) not in record


def test_a_changed_request_reuses_nothing_and_leaves_nothing(tmp_path):
    json_record(tmp_path / "r", {"k": 1}).save(BLOCK, 1)
    assert BLOCK not in json_record(tmp_path / "r", {"k": 2})
    assert BLOCK not in json_record(tmp_path / "r", {"k": 1})


def test_a_block_that_is_saved_again_leaves_the_views_of_the_earlier_value_as_they_are(tmp_path):
    record = BlockRecord(tmp_path / "r", {}, encode=lambda value: [value], decode=lambda data: data)
    record.save(BLOCK, b"earlier")
    view = record.load(BLOCK, mapped_bytes=0)
    record.save(BLOCK, b"later..")
    assert bytes(view) == b"earlier"
    assert bytes(record.load(BLOCK)) == b"later.."


def test_a_value_that_raysm_did_not_write_is_refused_with_the_remedy(tmp_path):
    record = BlockRecord(tmp_path / "r", {}, encode=lambda value: [value], decode=from_json)
    record.save(BLOCK, b"no JSON")
    with pytest.raises(
        InvalidInput, match="rows 0 to 9.*was not written by raysm.*remove the job's checkpoints"
    ):
        record.load(BLOCK)


def test_a_record_that_is_removed_leaves_what_is_not_its_own(tmp_path):
    record = json_record(tmp_path / "r", {})
    record.save(BLOCK, 1)
    record.remove()
    assert not (tmp_path / "r").exists()
    record.save(BLOCK, 1)
    (tmp_path / "r" / "a file of the service").touch()
    again = json_record(tmp_path / "r", {})
    assert BLOCK in again
    again.remove()
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["a file of the service"]


@pytest.mark.parametrize("damage", ["cut", "changed", "longer", "emptied"])
def test_a_torn_file_is_not_trusted(tmp_path, damage):
    record = json_record(tmp_path / "r", {})
    record.save(BLOCK, list(range(100)))
    path = record.path(BLOCK)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1 if damage == "changed" else 0
    path.write_bytes(
        {"cut": content[:-1], "longer": content + b"x", "emptied": b""}.get(damage, content)
    )
    again = json_record(tmp_path / "r", {})
    assert BLOCK not in again
    assert not path.exists()


def test_a_record_occupies_what_its_files_take_on_the_disk(tmp_path):
    (tmp_path / "inner").mkdir()
    with (tmp_path / "inner" / "full").open("wb") as full:
        full.write(bytes(range(256)) * (1 << 14))
        # Some file systems give a file its blocks only then.
        os.fsync(full.fileno())
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 33)
    assert 4 << 20 <= occupied_bytes(tmp_path) < 5 << 20


def test_a_full_disk_is_said_with_the_block(tmp_path):
    record = json_record(tmp_path / "r", {})
    with pytest.raises(NoRoom, match="rows 0 to 9"):
        BlockRecord(tmp_path / "r", {}, encode=FullDisk, decode=bytes).save(BLOCK, 1)
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

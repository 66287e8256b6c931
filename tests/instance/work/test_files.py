import dataclasses
import errno
import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.core.protocol import names
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.store import sha256_of
from raysm.core.request import Input, JobRequest
from raysm.errors import InvalidRequest, NoRoom
from raysm.features.script.request import Script
from raysm.instance import environment
from raysm.instance.work import folders
from raysm.instance.work.blocks import file_blocks, map_blocks
from raysm.instance.work.disk import PIECES, Stream, full_disk_is_no_room, write_at
from raysm.instance.work.folders import RECORD, fill_folders, make_state_folder
from raysm.instance.work.parquet import write_parquet
from tests.support.driving import drive
from tests.support.payloads import pack_payload


def read_text(block):
    return block.path.read_text()


@pytest.fixture
def channel(base, tmp_path):
    (tmp_path / "job.py").write_text("")

    def make(distribution):
        paths = Paths(base)
        folder = paths.channel("texts")
        (folder / "deep").mkdir(parents=True)
        (folder / "b.txt").write_text("bee")
        (folder / "deep" / "a.txt").write_text("ay")
        inputs = {"texts": Input("/texts", distribution=distribution)}
        request = JobRequest(name="job", workload=Script(str(tmp_path / "job.py")), inputs=inputs)
        pack_payload(request, paths.payload)

    return make


@pytest.mark.parametrize(
    ("distribution", "host"), [("FullyReplicated", None), ("ShardedByS3Key", "algo-1")]
)
def test_each_file_is_a_block_on_an_instance_that_has_it(channel, distribution, host):
    channel(distribution)
    blocks = file_blocks("texts")
    assert [(block.name, block.size_bytes, block.host) for block in blocks] == [
        ("b.txt", 3, host),
        ("deep/a.txt", 2, host),
    ]
    assert {block.name: text for block, text in map_blocks(read_text, blocks)} == {
        "b.txt": "bee",
        "deep/a.txt": "ay",
    }


def test_a_channel_that_the_job_has_not_is_refused(channel):
    channel("FullyReplicated")
    with pytest.raises(InvalidRequest, match="'images'.*texts"):
        file_blocks("images")


SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("name", pa.large_string(), nullable=False),
        pa.field(
            "best", pa.list_(pa.field("item", pa.float32(), nullable=False), 3), nullable=False
        ),
    ]
)


def groups_of(sizes):
    start, rng = 0, np.random.default_rng(0)
    for size in sizes:
        rows = np.arange(start, start + size)
        best = pa.array(rng.random(size * 3, dtype=np.float32))
        yield [
            pa.array(rows),
            pa.array([f"n{row}" for row in rows], pa.large_string()),
            pa.FixedSizeListArray.from_arrays(best, type=SCHEMA.field("best").type),
        ]
        start += size


def test_a_parquet_file_is_written_whole_with_its_digest(tmp_path):
    path, sizes = tmp_path / "x.parquet", [3, 3, 1]
    file = write_parquet(path, SCHEMA, groups_of(sizes), inner=(5,))
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == sha256_of(path)
    assert (file.name, file.shape, file.bytes) == ("x.parquet", (7, 5), path.stat().st_size)
    expected = pa.concat_tables(pa.table(group, schema=SCHEMA) for group in groups_of(sizes))
    assert pq.read_table(path).equals(expected)
    assert pq.read_table(path).schema.equals(SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_a_file_that_fails_half_way_is_not_there(tmp_path):
    def breaks():
        yield from groups_of([3])
        raise OSError("the part is gone")

    with pytest.raises(OSError, match="the part is gone"):
        write_parquet(tmp_path / "x.parquet", SCHEMA, breaks())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_used_up_quota_are_no_room(tmp_path, number):
    message = f"{tmp_path} became full while rows.npy "
    with pytest.raises(NoRoom, match=message), full_disk_is_no_room(tmp_path / "rows.npy"):
        raise OSError(number, os.strerror(number))


HEAD = b"head"
PIECE = 10_000


def content_of(pieces):
    return np.random.default_rng(0).bytes(pieces * PIECE)


def opened(path, content):
    return Stream(path, HEAD, len(HEAD) + len(content))


def put(stream, content, at):
    stream.put(len(HEAD) + at * PIECE, memoryview(content)[at * PIECE : (at + 1) * PIECE])


@pytest.mark.parametrize("seed", [0, 1])
def test_pieces_in_any_order_make_the_whole_file_and_its_digest(tmp_path, seed):
    content = content_of(30)
    stream = opened(tmp_path / "x", content)
    for at in np.random.default_rng(seed).permutation(30).tolist():
        put(stream, content, at)
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()
    assert (tmp_path / "x").read_bytes() == HEAD + content


def write_until_full(descriptor, position, data):
    if position:
        raise OSError(28, "No space left on device")
    write_at(descriptor, position, data)


def test_a_disk_that_becomes_full_is_said_and_nothing_waits_for_it(tmp_path):
    content = content_of(4 * PIECES)
    stream = Stream(tmp_path / "x", HEAD, len(HEAD) + len(content), write_until_full)

    def fill():
        for at in range(4 * PIECES):
            put(stream, content, at)
        stream.finish()

    with pytest.raises(NoRoom, match="full while x "):
        fill()
    stream.close()


@pytest.fixture
def here(instance):
    told = environment.read({names.BASE_DIR: str(instance.base)})
    return dataclasses.replace(told, has_checkpoints=True)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "labels").mkdir(parents=True)
    (folder / "main.py").write_text("first")
    (folder / "labels" / "names.txt").write_text("cat")
    return folder


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECORD
    }


def test_the_source_lies_in_the_state_folder_and_follows_the_source_of_the_next_run(here, source):
    folder = make_state_folder(here, source, pytest.fail)
    assert folder == here.paths.state("algo-1")
    assert files_of(folder) == {"main.py": "first", "labels/names.txt": "cat"}
    (folder / "checkpoint.pth.tar").write_text("epoch 1")
    (source / "main.py").write_text("second")
    (source / "labels" / "names.txt").unlink()
    make_state_folder(here, source, pytest.fail)
    assert files_of(folder) == {"main.py": "second", "checkpoint.pth.tar": "epoch 1"}


def test_a_checkpoint_of_a_name_that_the_source_has_too_is_kept_and_named(here, source):
    (source / "checkpoint.pth.tar").write_text("of an earlier run on the laptop")
    folder = make_state_folder(here, source, pytest.fail)
    (folder / "checkpoint.pth.tar").write_text("epoch 1")
    said = []
    for _ in range(2):
        make_state_folder(here, source, said.append)
        assert (folder / "checkpoint.pth.tar").read_text() == "epoch 1"
    assert [text.endswith("differ from the source's: checkpoint.pth.tar") for text in said] == [
        True,
        True,
    ]


def test_a_record_that_came_back_changed_leads_to_no_file_outside_of_the_state_folder(
    here, source, tmp_path
):
    folder = make_state_folder(here, source, pytest.fail)
    (tmp_path / "mine").write_text("keep")
    digest = hashlib.sha256(b"keep").hexdigest()
    outside = os.path.relpath(tmp_path / "mine", folder)
    (folder / RECORD).write_text(json.dumps({outside: digest, str(tmp_path / "mine"): digest}))
    make_state_folder(here, source, pytest.fail)
    assert (tmp_path / "mine").read_text() == "keep"


@pytest.mark.parametrize("text", ["", "[", "[1]", "[" * 100_000])
def test_a_record_that_is_none_makes_no_difference(here, source, text):
    folder = make_state_folder(here, source, pytest.fail)
    (folder / RECORD).write_text(text)
    make_state_folder(here, source, pytest.fail)
    assert files_of(folder) == {"main.py": "first", "labels/names.txt": "cat"}


def test_what_a_training_leaves_in_its_state_folder_is_in_the_result_and_stays(here, source):
    folder = folders.link_state_folder(here, source, pytest.fail)
    (folder / "runs").mkdir()
    (folder / "runs" / "log").write_text("x")
    (folder / "best.pt").write_text("weights")
    assert folders.save_outputs(here) == ["best.pt", "runs"]
    assert files_of(here.paths.model) == {"best.pt": "weights", "runs/log": "x"}
    assert (folder / "best.pt").read_text() == "weights"


def test_arguments_name_the_folders_of_the_state_and_of_the_inputs(here):
    here = dataclasses.replace(here, channels=("train",))
    state, train = here.paths.state("algo-1"), here.paths.channel("train")
    assert fill_folders(("--to={state}/a", "{channel_train}", '{"a": 1}'), here) == (
        f"--to={state}/a",
        str(train),
        '{"a": 1}',
    )
    with pytest.raises(InvalidRequest, match=r"'\{state\}'"):
        fill_folders(("{state}",), dataclasses.replace(here, has_checkpoints=False))


def test_a_script_on_the_head_runs_in_its_state_folder(instance, tmp_path):
    (instance.config / "checkpointconfig.json").write_text(
        '{"LocalPath": "/opt/ml/checkpoints", "S3Uri": "s3://b/c"}'
    )
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(os.path.samefile('.', os.environ['HERE']), os.path.exists('train.py'), sys.argv[1])\n"
    )
    workload = Script(str(tmp_path / "train.py"), in_state=True, args=("{state}",))
    pack_payload(JobRequest(name="job", workload=workload), instance.payload)
    state = instance.state("algo-1")
    done, _ = drive(instance, tmp_path, HERE=str(state))
    assert done.stdout == f"True True {state}\n", done.stderr


@pytest.fixture
def working_here(tmp_path):
    base = tmp_path / "ml"
    config = base / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    (base / "input" / "data" / "images").mkdir(parents=True)
    return environment.read({names.BASE_DIR: str(base)})


def test_a_script_sees_its_source_and_channels_and_leaves_what_it_makes(working_here, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.py").write_text("")
    folder = folders.make_folder(working_here, source)
    assert sorted(path.name for path in folder.iterdir()) == ["images", "main.py"]
    (folder / "checkpoint.pt").write_text("second attempt's")
    (folder / "model.bin").write_text("of the working folder")
    working_here.paths.model.mkdir()
    (working_here.paths.model / "model.bin").write_text("of the model folder")
    assert folders.make_folder(working_here, source) == folder  # a second attempt
    assert folders.save_outputs(working_here) == ["checkpoint.pt"]
    assert (working_here.paths.model / "checkpoint.pt").read_text() == "second attempt's"
    assert (working_here.paths.model / "model.bin").read_text() == "of the model folder"


def test_what_lies_on_another_disk_than_the_model_arrives_whole(working_here, tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if Path(other).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is no other disk here")
        elsewhere = replace(
            working_here, paths=replace(working_here.paths, scratch_root=Path(other))
        )
        folder = folders.make_folder(elsewhere, tmp_path / "ml" / "input" / "config")
        (folder / "best.pt").write_text("best")
        (folder / "runs" / "one").mkdir(parents=True)
        (folder / "runs" / "one" / "events").write_text("logged")
        assert folders.save_outputs(elsewhere) == ["best.pt", "runs"]
        assert not (folder / "best.pt").exists()
        assert not (folder / "runs").exists()
    model = working_here.paths.model
    assert sorted(
        path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()
    ) == [
        "best.pt",
        "runs/one/events",
    ]
    assert (model / "runs" / "one" / "events").read_text() == "logged"

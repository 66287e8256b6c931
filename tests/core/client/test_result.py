"""Results as they are read back: folders, tables, parts, values of functions, and what they raised."""

import dataclasses
import hashlib
import json
import os
import pickle
import re
import stat
import threading
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import compute

from raysm.core.client.job.handle import attach
from raysm.core.client.results.result import (
    Unverified,
    earlier_result,
    manifest_of,
    read_as,
    read_pickle,
)
from raysm.core.client.storage.s3 import file_path
from raysm.core.client.submit import submit
from raysm.core.protocol.events import Digest, line
from raysm.core.protocol.result import (
    EXCEPTION,
    FAILURE,
    MARK,
    VALUE,
    Failure,
    Manifest,
    ResultFile,
    how_to_read,
)
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, JobFailed, MissingDependency, ServiceError
from raysm.features.script.client import Function
from raysm.features.script.request import Script
from raysm.features.similarity.result import SimilarityResult, StackedRows
from tests.support.client_jobs import M5, NOW_MS, leave, leave_pickle, log_digest, manifest
from tests.support.odd_names import ONLY_FILES, contents, read_all, write_all
from tests.support.sagemaker import QUICK, now, refusal
from tests.support.strangers import NOBODY, needs_two_users


@pytest.fixture
def call(remote):
    # A function of this module would bring all files of the tests, which takes a second of a core.
    return submit(Function(abs, 1), cluster=M5, on=remote.service)


MANIFEST = Manifest(
    job="j",
    workload={"kind": "similarity"},
    inputs={},
    files=(
        ResultFile(
            name="full.npy",
            shape=(2, 2),
            bytes=144,
            sha256="0",
            how_to_read=how_to_read("full.npy"),
        ),
    ),
    versions={},
    instances=("algo-1",),
    phases_s={},
)


def leave_matrix(remote, job, tmp_path):
    import numpy as np

    np.save(tmp_path / "full.npy", np.eye(2, dtype="float32"))
    leave(remote, job, "model/full.npy", (tmp_path / "full.npy").read_bytes())
    leave(remote, job, "model/manifest.json", MANIFEST.write(tmp_path).read_bytes())


def test_a_result_with_a_manifest_is_a_folder_that_can_be_read(remote, job, tmp_path):
    leave_matrix(remote, job, tmp_path)
    remote.sagemaker.end(job.name, "Completed")
    result = job.result(to=tmp_path / "out")
    assert result.path == tmp_path / "out"
    assert result.manifest == MANIFEST
    assert result.table().tolist() == [[1, 0], [0, 1]]
    assert Path(result, "full.npy").read_bytes()[:6] == b"\x93NUMPY"
    with pytest.raises(InvalidRequest, match=r"'x'.*full\.npy"):
        result.table("x")
    assert "full.npy: 2 x 2, 144 bytes" in repr(result)


def test_a_result_of_aws_is_kept_below_the_home_and_brought_once(
    remote, job, tmp_path, monkeypatch
):
    monkeypatch.setenv("RAYSM_HOME", str(tmp_path / "home"))
    leave_matrix(remote, job, tmp_path)
    remote.sagemaker.end(job.name, "Completed")
    first = job.result()
    remote.s3.calls.clear()
    assert job.result().path == first.path == tmp_path / "home" / "results" / job.name
    assert not [name for name, _ in remote.s3.calls if name == "download_file"]
    # A program that was killed, or a full disk, may have left half of a file there.
    (first / "full.npy").write_bytes(b"half")
    assert job.result().table().tolist() == [[1, 0], [0, 1]]
    # A similarity or a value may be as secret as its input.
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o700


def ended(remote, script, name=None, **files):
    """Return a job that left ``files``, whose names here have no dots."""
    job = submit(Script(str(script)), cluster=M5, on=remote.service, name=name)
    for file, content in files.items():
        leave(remote, job, f"model/{file}", content)
    remote.sagemaker.end(job.name, "Completed")
    return job


def with_manifest(job, *names):
    files = [ResultFile(name=name, shape=(), bytes=1, sha256="0", how_to_read="") for name in names]
    return json.dumps(to_json(dataclasses.replace(MANIFEST, job=job, files=tuple(files)))).encode()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_result_of_an_earlier_run_of_the_task_is_replaced_as_a_whole(remote, script, tmp_path):
    first = ended(remote, script, old=b"1", both=b"1")
    leave(remote, first, "model/manifest.json", with_manifest(first.name, "old", "both"))
    first.result(to=tmp_path / "out")
    (tmp_path / "out" / "mine").write_bytes(b"of the user")
    second = ended(remote, script, both=b"2", new=b"2")
    leave(remote, second, "model/manifest.json", with_manifest(second.name, "both", "new"))
    second.result(to=tmp_path / "out")
    assert names_in(tmp_path / "out") == ["both", "manifest.json", "mine", "new"]
    assert (tmp_path / "out" / "both").read_bytes() == b"2"


def test_a_users_file_stays_that_has_the_name_of_a_file_of_a_result_before_the_last(
    remote, script, tmp_path
):
    ended(remote, script, old=b"1").result(to=tmp_path / "out")
    ended(remote, script, new=b"2").result(to=tmp_path / "out")
    assert not (tmp_path / "out" / "old").exists()
    (tmp_path / "out" / "old").write_bytes(b"of the user")
    ended(remote, script, new=b"3").result(to=tmp_path / "out")
    assert (tmp_path / "out" / "old").read_bytes() == b"of the user"
    assert (tmp_path / "out" / "new").read_bytes() == b"3"


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_result_is_replaced_though_the_user_has_removed_a_file_of_it(
    remote, script, tmp_path, is_folder
):
    ended(remote, script, old=b"1").result(to=tmp_path / "out")
    (tmp_path / "out" / "old").unlink()
    if is_folder:
        (tmp_path / "out" / "old").mkdir()
    ended(remote, script, new=b"2").result(to=tmp_path / "out")
    assert (tmp_path / "out" / "new").read_bytes() == b"2"
    assert (tmp_path / "out" / "old").is_dir() == is_folder


def test_a_result_goes_into_a_new_or_an_empty_folder_and_not_over_a_file(remote, script, tmp_path):
    job = ended(remote, script, x=b"1")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new" / "inner"):
        assert (job.result(to=folder) / "x").read_bytes() == b"1"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidRequest, match="is a file"):
        job.result(to=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_result_of_another_task_is_left_alone(remote, script, tmp_path):
    first = ended(remote, script, name="topk", x=b"1")
    first.result(to=tmp_path / "out")
    second = ended(remote, script, name="pairs", y=b"2")
    said = f"{first.name}.*'pairs'"
    with pytest.raises(InvalidRequest, match=said):
        second.result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".")] == ["x"]
    assert first.result(to=tmp_path / "out") == tmp_path / "out"


def test_an_interrupted_replacement_leaves_no_file_of_the_old_result_behind_in_the_end(
    remote, script, tmp_path
):
    first, second = ended(remote, script, old=b"1"), ended(remote, script, new=b"2")
    leave(remote, first, "model/manifest.json", with_manifest(first.name, "old"))
    first.result(to=tmp_path / "out")
    lost = remote.fail("download_file", refusal("AccessDenied", "no"))
    with pytest.raises(ServiceError, match="AccessDenied"):
        second.result(to=tmp_path / "out")
    # One of manifest and mark always lists the files, here those of both results.
    assert manifest_of(tmp_path / "out") is None
    mixed = earlier_result(tmp_path / "out")
    assert (mixed.job, mixed.names) == (second.name, {"old", "new"})
    lost.end()
    second.result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".")] == ["new"]


def test_files_of_any_name_are_fetched_and_replaced_by_the_next_run(local, script, tmp_path):
    first = submit(Script(str(script)), on=local.service)
    write_all(file_path(first.outputs) / "model", ONLY_FILES)
    local.sagemaker.end(first.name, "Completed")
    first.result(to=tmp_path / "out")
    assert earlier_result(tmp_path / "out").names == set(ONLY_FILES)
    assert contents(ONLY_FILES).items() <= read_all(tmp_path / "out").items()
    second = submit(Script(str(script)), on=local.service)
    write_all(file_path(second.outputs) / "model", ["new"])
    local.sagemaker.end(second.name, "Completed")
    second.result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".raysm")] == [
        "new",
        "sub folder",
    ]


def test_a_manifest_that_names_files_elsewhere_has_none_of_them_removed(remote, script, tmp_path):
    (tmp_path / "mine").write_text("mine")
    first = ended(remote, script, x=b"1")
    leave(
        remote,
        first,
        "model/manifest.json",
        with_manifest(first.name, "x", "../mine", str(tmp_path / "mine")),
    )
    first.result(to=tmp_path / "out")
    ended(remote, script, y=b"2").result(to=tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "mine"


def test_files_that_a_mark_names_behind_a_link_out_of_the_folder_stay(remote, script, tmp_path):
    first = ended(remote, script, name="task", new=b"1")
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    (mine / "key").write_text("of the user")
    out.mkdir()
    # Another user may have made the folder, with a link and a mark.
    (out / "inside").symlink_to(mine)
    (out / MARK).write_text(f"{first.name}\ninside/key\n")
    first.result(to=out)
    assert (out / "new").read_bytes() == b"1"
    assert (mine / "key").read_text() == "of the user"


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_manifest_is_none(remote, script, tmp_path):
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "manifest.json")
    with pytest.raises(InvalidRequest, match="holds files that are not a result"):
        ended(remote, script, new=b"1").result(to=tmp_path / "out")


def test_a_result_of_this_machine_is_copied_to_where_it_is_wanted(local, script, tmp_path):
    job = submit(Script(str(script)), on=local.service)
    leave(local, job, "model/x", b"1")
    local.sagemaker.end(job.name, "Completed")
    with (job.result(to=tmp_path / "out") / "x").open("r+b") as edited:
        edited.write(b"2")
    assert (job.result() / "x").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["manifest.json", "notes.txt"])
def test_a_result_is_not_brought_into_a_folder_of_the_users(remote, job, tmp_path, name):
    leave_matrix(remote, job, tmp_path)
    remote.sagemaker.end(job.name, "Completed")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text('{"mine": true}')
    with pytest.raises(InvalidRequest, match="not a result"):
        job.result(to=tmp_path / "mine")
    assert (tmp_path / "mine" / name).read_text() == '{"mine": true}'


@pytest.mark.parametrize("name", ["/etc/passwd", "../mine.npy", "sub/../../mine.npy", ""])
def test_a_manifest_that_names_a_file_elsewhere_is_not_followed(
    remote, job, tmp_path, caplog, name
):
    leave(remote, job, "model/full.npy", b"x")
    leave(remote, job, "model/manifest.json", with_manifest(job.name, "full.npy", name))
    remote.sagemaker.end(job.name, "Completed")
    assert job.result(to=tmp_path / "out") == tmp_path / "out"
    assert repr(name) in caplog.text


def test_a_line_of_a_manifest_that_says_how_to_read_a_file_is_replaced_by_our_own(tmp_path):
    evil = dataclasses.replace(MANIFEST.files[0], how_to_read="import os; os.system('evil')")
    dataclasses.replace(MANIFEST, files=(evil,)).write(tmp_path)
    read = manifest_of(tmp_path)
    assert (
        read.files[0].how_to_read == 'import numpy; array = numpy.load("full.npy", mmap_mode="r")'
    )
    assert "evil" not in repr(read_as(tmp_path, read))


def test_files_of_a_result_are_read_by_their_kind(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "rows.parquet")
    np.save(tmp_path / "rows.npy", np.eye(2))
    names = ("rows.parquet", "rows.npy", "rows.txt")
    files = [ResultFile(name=name, shape=(), bytes=1, sha256="0", how_to_read="") for name in names]
    result = read_as(tmp_path, manifest(*files, workload={"kind": "script"}))
    assert result.file == tmp_path / "rows.parquet"
    assert [part["x"].to_pylist() for part in (result.table(), *result.tables())] == [[1, 2]] * 2
    assert isinstance(result.table("rows.npy"), np.memmap)
    with pytest.raises(InvalidRequest, match=r"rows\.txt is neither"):
        result.table("rows.txt")


@pytest.mark.parametrize("kind", ["similarity", "batch", "script"])
def test_a_result_without_files_is_a_sentence_when_it_is_read(tmp_path, kind):
    result = read_as(tmp_path, dataclasses.replace(MANIFEST, workload={"kind": kind}, files=()))
    assert MANIFEST.job in repr(result)
    for read in (result.table, lambda: result.file):
        with pytest.raises(InvalidRequest):
            read()


def test_a_manifest_of_the_scripts_own_is_a_file_like_others(remote, job, tmp_path):
    leave(remote, job, "model/manifest.json", b'{"mine": true}')
    remote.sagemaker.end(job.name, "Completed")
    for _ in range(2):
        assert (job.result(to=tmp_path / "out") / "manifest.json").read_bytes() == b'{"mine": true}'


def test_an_archive_that_a_job_of_others_left_is_brought_as_it_is(remote, job, tmp_path):
    leave(remote, job, "model.tar.gz", b"tar")
    artifacts = {"S3ModelArtifacts": f"{job.outputs}/model.tar.gz"}
    remote.sagemaker.end(job.name, "Completed", ModelArtifacts=artifacts)
    assert (job.result(to=tmp_path / "out") / "model.tar.gz").read_bytes() == b"tar"


def test_an_archive_of_this_machine_is_in_the_folder_that_is_returned(local, script):
    job = submit(Script(str(script)), on=local.service)
    leave(local, job, "model.tar.gz", b"tar")
    local.sagemaker.end(job.name, "Completed")
    assert (job.result() / "model.tar.gz").read_bytes() == b"tar"


def test_a_failed_job_raises_its_reason_and_the_traceback_that_it_left(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="ValueError: no")
    with pytest.raises(JobFailed, match="ValueError: no") as caught:
        job.result()
    assert (caught.value.job, caught.value.reason) == (job.name, "ValueError: no")
    failure = Failure(error_type="ValueError", message="no", remote_traceback="Traceback: line 3\n")
    leave(remote, job, f"data/{FAILURE}", json.dumps(to_json(failure)).encode())
    error = pickle.loads(pickle.dumps(job.exception()))
    assert re.search("(?s)ValueError: no.*line 3", str(error))
    assert error.remote_traceback == failure.remote_traceback


def test_what_the_users_code_says_of_its_failure_comes_first_and_the_traceback_once(remote, job):
    failure = Failure(error_type="ValueError", message="no", remote_traceback="Traceback: line 3\n")
    leave(remote, job, f"data/{FAILURE}", json.dumps(to_json(failure)).encode())
    reason = "the third file is empty\nValueError: no\nTraceback: line 3"
    remote.sagemaker.end(job.name, "Failed", FailureReason=reason)
    error = job.exception()
    assert re.search("(?s)the third file is empty.*ValueError: no.*line 3", str(error))
    assert str(error).count("line 3") == 1
    assert error.reason == reason


class OwnError(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self):
        return OwnError, (self.code,)


def test_the_message_of_a_failed_job_does_not_control_the_terminal(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="\x1b]0;title\x07 AlgorithmError")
    error = job.exception()
    assert str(error).isprintable()
    assert repr(job).replace("\n", "").isprintable()


def test_a_result_whose_files_have_controls_in_their_names_shows_them_as_text(tmp_path):
    file = dataclasses.replace(MANIFEST.files[0], name="\x1b]0;title\x07.npy")
    result = read_as(tmp_path, dataclasses.replace(MANIFEST, job="\x1b[8m", files=(file,)))
    assert repr(result).replace("\n", "").isprintable()


def test_a_function_raises_its_own_exception_with_the_remote_traceback_as_cause(remote, call):
    failure = Failure(error_type="OwnError", message="code 3", remote_traceback="Traceback: in f\n")
    leave(remote, call, f"data/{FAILURE}", json.dumps(to_json(failure)).encode())
    leave_pickle(remote, call, "data", EXCEPTION, cloudpickle.dumps(OwnError(3)))
    remote.sagemaker.end(call.name, "Failed", FailureReason="OwnError: code 3")
    with pytest.raises(OwnError) as caught:
        call.result()
    assert caught.value.code == 3
    assert isinstance(caught.value.__cause__, JobFailed)
    assert "Traceback: in f" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "content", [b"", b"broken", cloudpickle.dumps(SystemExit(3))], ids=["none", "broken", "exit"]
)
def test_an_exception_that_cannot_be_had_is_a_failed_job(remote, call, content):
    leave_pickle(remote, call, "data", EXCEPTION, content)
    remote.sagemaker.end(call.name, "Failed", FailureReason="SystemExit: 3")
    with pytest.raises(JobFailed, match="SystemExit: 3"):
        call.result()


def test_the_value_of_another_python_is_refused(remote, call):
    for tag in remote.sagemaker.jobs[call.name]["tags"]:
        tag["Value"] = "3.7" if tag["Key"] == "raysm:python" else tag["Value"]
    leave(remote, call, f"model/{VALUE}", pickle.dumps(1))
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(InvalidRequest, match=r"Python 3\.7"):
        attach(call.name, remote.service).result()


def test_an_exception_of_another_python_is_a_failed_job(remote, call):
    for tag in remote.sagemaker.jobs[call.name]["tags"]:
        tag["Value"] = "3.7" if tag["Key"] == "raysm:python" else tag["Value"]
    leave_pickle(remote, call, "data", EXCEPTION, cloudpickle.dumps(OwnError(3)))
    remote.sagemaker.end(call.name, "Failed", FailureReason="OwnError: code 3")
    assert isinstance(attach(call.name, remote.service).exception(), JobFailed)


def test_a_value_that_is_gone_or_broken_says_so(remote, call):
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(ServiceError, match=r"result\.pkl"):
        call.result()
    leave_pickle(remote, call, "model", VALUE, b"broken")
    with pytest.raises(ServiceError, match="UnpicklingError"):
        call.result()


OF_MISSING_MODULE = b"cabsent_module.inner\nMissing\n."
"""A pickle of a class whose module is not here."""


def test_a_value_whose_class_is_not_here_names_the_module(remote, call):
    leave_pickle(remote, call, "model", VALUE, OF_MISSING_MODULE)
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(MissingDependency, match="'absent_module.*pip install absent_module"):
        call.result()


def test_an_exception_whose_class_is_not_here_is_a_failed_job_that_names_the_module(remote, call):
    leave_pickle(remote, call, "data", EXCEPTION, OF_MISSING_MODULE)
    remote.sagemaker.end(call.name, "Failed", FailureReason="Missing: no")
    error = call.exception()
    assert isinstance(error, JobFailed)
    assert (error.job, error.reason) == (call.name, "Missing: no")
    assert "pip install absent_module" in error.remedy
    assert error.remedy in str(error)


@pytest.mark.parametrize(
    ("reason", "is_hinted"),
    [
        ("ClientError: User\nis not authorized to perform: s3:GetObject", True),
        ("ClientError: The KMS key is disabled", True),
        ("ClientError: no such image", False),
        ("AccessDenied: is not authorized", False),
    ],
)
def test_a_job_whose_role_lacks_a_permission_names_the_check_that_finds_it(
    remote, job, reason, is_hinted
):
    remote.sagemaker.end(job.name, "Failed", FailureReason=reason)
    assert ("raysm doctor" in str(job.exception())) == is_hinted


class RunsCode:
    """A pickle of it makes a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_value_that_someone_wrote_over_in_the_bucket_is_not_unpickled(remote, call, tmp_path):
    leave_pickle(remote, call, "model", VALUE, pickle.dumps(2))
    remote.sagemaker.end(call.name, "Completed")
    assert call.result() == 2
    leave(remote, call, f"model/{VALUE}", pickle.dumps(RunsCode(tmp_path / "run")))
    for unverified in (False, True):
        with pytest.raises(Unverified, match=r"result\.pkl.*not what"):
            call.result(unverified=unverified)
    assert not (tmp_path / "run").exists()


@needs_two_users
def test_a_value_of_another_user_in_place_of_the_home_is_not_unpickled(local, tmp_path):
    job = submit(Function(abs, 1), on=local.service)
    leave(local, job, f"model/{VALUE}", pickle.dumps(RunsCode(tmp_path / "run")))
    local.sagemaker.end(job.name, "Completed")
    # As after a swap of the home by a user who may write the folder above it.
    os.chown(file_path(job.outputs) / "model" / VALUE, NOBODY, NOBODY)
    for unverified in (False, True):
        with pytest.raises(Unverified, match="belongs to another user"):
            job.result(unverified=unverified)
    assert not (tmp_path / "run").exists()


def test_a_value_of_this_machine_is_trusted_only_below_the_home(local, tmp_path):
    job = submit(Function(abs, 1), on=local.service)
    leave(local, job, f"model/{VALUE}", pickle.dumps(2))
    local.sagemaker.end(job.name, "Completed")
    assert job.result() == 2
    (tmp_path / VALUE).write_bytes(pickle.dumps(2))
    for uri in ((tmp_path / VALUE).as_uri(), f"{local.service.home.as_uri()}/../{VALUE}"):
        with pytest.raises(Unverified):
            read_pickle(uri, VALUE, job.chain, unverified=False)
        assert read_pickle(uri, VALUE, job.chain, unverified=True) == pickle.dumps(2)


def test_a_digest_in_the_midst_of_a_long_log_is_found(remote, call):
    # One answer of CloudWatch Logs has up to 10,000 lines.
    for count in (10_000, 100):
        remote.write_log(call.name, "algo-1", [(NOW_MS, "a line")] * count)
    log_digest(remote, call, VALUE, pickle.dumps(2), at_ms=NOW_MS + 1)
    for count in (10_000, 100):
        remote.write_log(call.name, "algo-1", [(NOW_MS + 2, "a line")] * count)
    leave(remote, call, f"model/{VALUE}", pickle.dumps(2))
    remote.sagemaker.end(call.name, "Completed")
    assert call.result() == 2


def test_a_value_whose_digest_the_log_does_not_have_is_read_only_when_asked(remote, call, tmp_path):
    leave(remote, call, f"model/{VALUE}", pickle.dumps(RunsCode(tmp_path / "run")))
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(Unverified) as caught:
        call.result()
    assert f"raysm result {call.name} --unverified" in caught.value.remedy
    # Nor does the digest of another file count.
    log_digest(remote, call, EXCEPTION, pickle.dumps(RunsCode(tmp_path / "run")))
    with pytest.raises(Unverified):
        call.result()
    assert not (tmp_path / "run").exists()
    call.result(unverified=True)
    assert (tmp_path / "run").exists()


def test_a_log_that_may_not_be_read_is_the_error_and_the_value_stays_unread(remote, call, tmp_path):
    leave_pickle(remote, call, "model", VALUE, pickle.dumps(RunsCode(tmp_path / "run")))
    remote.sagemaker.end(call.name, "Completed")
    remote.fail("describe_log_streams", refusal("AccessDenied", "no"))
    with pytest.raises(ServiceError, match="AccessDenied"):
        call.result()
    assert not (tmp_path / "run").exists()


def test_an_exception_that_someone_wrote_over_is_not_unpickled_and_the_failure_says_so(
    remote, call, tmp_path
):
    leave_pickle(remote, call, "data", EXCEPTION, cloudpickle.dumps(OwnError(3)))
    leave(remote, call, f"data/{EXCEPTION}", pickle.dumps(RunsCode(tmp_path / "run")))
    remote.sagemaker.end(call.name, "Failed", FailureReason="OwnError: code 3")
    error = call.exception()
    assert isinstance(error, JobFailed)
    assert re.search("(?s)OwnError: code 3.*exception.pkl was not read", str(error))
    assert not (tmp_path / "run").exists()


def test_of_several_digests_in_all_streams_the_last_one_counts(remote, call):
    """A job that was interrupted and went on has left two, and its head may be any instance."""
    log_digest(remote, call, VALUE, pickle.dumps(1), host="algo-1", at_ms=NOW_MS)
    leave(remote, call, f"model/{VALUE}", pickle.dumps(2))
    log_digest(remote, call, VALUE, pickle.dumps(2), host="algo-2", at_ms=NOW_MS + 1000)
    remote.sagemaker.end(call.name, "Completed")
    assert call.result() == 2


def test_a_digest_that_a_job_prints_with_data_of_others_does_not_count(remote, call, tmp_path):
    leave_pickle(remote, call, "model", VALUE, pickle.dumps(2))
    forged = pickle.dumps(RunsCode(tmp_path / "run"))
    leave(remote, call, f"model/{VALUE}", forged)
    digest = line(Digest(file=VALUE, sha256=hashlib.sha256(forged).hexdigest(), time_s=1e12))
    # By the log's clock before the driver's; and behind the label of a task, whose lines may come
    # late.
    remote.write_log(call.name, "algo-2", [(NOW_MS - 1000, digest)])
    remote.write_log(call.name, "algo-1", [(NOW_MS + 1000, f"(read pid=77, ip=10.0.0.2) {digest}")])
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(Unverified, match="is not what .* has written"):
        call.result()
    assert not (tmp_path / "run").exists()


def test_a_digest_that_arrives_after_the_end_is_waited_for(remote, call):
    leave(remote, call, f"model/{VALUE}", pickle.dumps(2))
    remote.sagemaker.end(call.name, "Completed")
    ended = remote.sagemaker.jobs[call.name]["answer"]
    ended["TrainingEndTime"] = now()
    remote.service._polling = dataclasses.replace(QUICK, late_s=60.0)
    writer = threading.Timer(0.5, log_digest, (remote, call, VALUE, pickle.dumps(2)))
    writer.start()
    try:
        assert call.result() == 2
    finally:
        writer.join()


@pytest.fixture
def stacked(tmp_path):
    """Ten rows in three files, and the same as one array."""
    everything = np.arange(70, dtype=np.float32).reshape(10, 7)
    paths = [tmp_path / f"{at}.npy" for at in range(3)]
    for path, part in zip(paths, np.split(everything, [3, 4]), strict=True):
        np.save(path, part)
    return StackedRows.of_files(paths), everything


@pytest.mark.parametrize(
    "key",
    [
        *(3, -1, np.int64(4), (5, 2), (3,)),
        *(
            slice(2, 8, 2),
            slice(4, 4),
            (slice(None), 3),
            (slice(1, 5), slice(0, 4)),
            (slice(0, 3), -1),
        ),
        [9, 0, 3, 0],
    ],
)
def test_rows_are_those_that_numpy_would_give(stacked, key):
    rows, everything = stacked
    found = rows[key]
    assert np.array_equal(found, everything[key])
    assert np.shape(found) == np.shape(everything[key])


def test_rows_and_columns_that_are_not_there_are_refused(stacked):
    table = stacked[0]
    with pytest.raises(IndexError, match="index 10"):
        table[10]
    with pytest.raises(IndexError, match=r"columns.*\[1, 2\]"):
        table[3, [1, 2]]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(table, copy=False)


def result_of(folder, shapes):
    """Return a result of files with these shapes, in their order."""
    files = tuple(
        ResultFile(
            name=name, shape=shape, bytes=7, sha256="0", how_to_read="", units=("rows", "columns")
        )
        for name, shape in shapes.items()
    )
    return read_as(folder, manifest(*files, workload={"kind": "similarity"}))


@pytest.fixture
def scores(tmp_path):
    """A full matrix in three parts, beside the names of its rows."""
    (tmp_path / "similarity").mkdir()
    everything = np.arange(70, dtype=np.float32).reshape(10, 7)
    for at, part in enumerate(np.split(everything, [3, 4])):
        np.save(tmp_path / "similarity" / f"part-{at}-of-3.npy", part)
    pq.write_table(pa.table({"id": ["a", "b"]}), tmp_path / "ids.parquet")
    shapes = {f"similarity/part-{at}-of-3.npy": (rows, 7) for at, rows in enumerate([3, 1, 6])}
    return result_of(tmp_path, shapes | {"ids.parquet": (2,)}), everything


def test_parts_of_the_full_matrix_are_one_array_that_is_read_where_it_is_asked(scores):
    result, everything = scores
    found = result.table()
    assert isinstance(found, StackedRows)
    assert np.array_equal(np.asarray(found), everything)
    assert (found.ndim, found.shape, found.dtype, len(found)) == (2, (10, 7), np.float32, 10)
    assert repr(found) == "<10 x 7 float32 in 3 files>"


def test_one_file_beside_the_parts_is_read_by_its_name(scores):
    assert scores[0].table("ids.parquet")["id"].to_pylist() == ["a", "b"]


def test_parts_are_shown_as_one_line_beside_the_other_files(scores):
    lines = repr(scores[0]).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == ["similarity", "ids.parquet"]
    assert "10 rows x 7 columns, 21 bytes in 3 parts" in lines[0]


def test_parts_of_neighbors_are_one_table_in_the_order_of_the_rows(tmp_path):
    (tmp_path / "neighbors").mkdir()
    # By the manifest, not by how names sort.
    for name, rows in (("b", [0, 1]), ("a", [2])):
        pq.write_table(pa.table({"row": rows}), tmp_path / "neighbors" / f"{name}.parquet")
    result = result_of(tmp_path, {"neighbors/b.parquet": (2, 4), "neighbors/a.parquet": (1, 4)})
    assert isinstance(result, SimilarityResult)
    assert result.table()["row"].to_pylist() == [0, 1, 2]
    assert result.parts == [
        tmp_path / "neighbors" / "b.parquet",
        tmp_path / "neighbors" / "a.parquet",
    ]


def neighbors_of(rows):
    """Return a table as a job writes it: two neighbors for each row, and ids."""
    neighbors = np.array([[(row + 1) % 3, (row + 2) % 3] for row in rows])

    def lists(values, item):
        return pa.FixedSizeListArray.from_arrays(pa.array(list(values), item), 2)

    columns = {
        "row": pa.array(rows),
        "id": pa.array([f"r{row}" for row in rows]),
        "neighbors": lists(neighbors.ravel(), pa.int64()),
        "neighbor_ids": lists([f"r{row}" for row in neighbors.ravel()], pa.string()),
        "similarities": lists([0.9, 0.1] * len(rows), pa.float32()),
    }
    return pa.table(columns)


def test_neighbors_can_be_read_as_a_table_of_pairs_in_the_order_of_the_rows(tmp_path):
    (tmp_path / "neighbors").mkdir()
    for name, rows in (("b", [0, 1]), ("a", [2])):
        pq.write_table(neighbors_of(rows), tmp_path / "neighbors" / f"{name}.parquet")
    pairs = result_of(
        tmp_path, {"neighbors/b.parquet": (2, 2), "neighbors/a.parquet": (1, 2)}
    ).pairs()
    assert pairs.column_names == ["row", "id", "neighbor", "neighbor_id", "similarity"]
    high = pairs.filter(compute.field("similarity") >= 0.5)
    assert high.drop_columns("similarity").to_pylist() == [
        {"row": row, "id": f"r{row}", "neighbor": (row + 1) % 3, "neighbor_id": f"r{(row + 1) % 3}"}
        for row in range(3)
    ]
    assert len(pairs) == 6


def test_a_result_of_pairs_is_its_own_table_of_pairs_and_a_full_matrix_has_none(tmp_path):
    table = pa.table({"row": [0], "neighbor": [1], "similarity": [0.9]})
    pq.write_table(table, tmp_path / "pairs.parquet")
    assert result_of(tmp_path, {"pairs.parquet": (1,)}).pairs() == table
    np.save(tmp_path / "similarity.npy", np.eye(3))
    with pytest.raises(InvalidRequest):
        result_of(tmp_path, {"similarity.npy": (3, 3)}).pairs()


def test_one_file_is_the_result_whatever_lies_beside_it(tmp_path):
    np.save(tmp_path / "similarity.npy", np.eye(3))
    result = result_of(tmp_path, {"similarity.npy": (3, 3), "ids.parquet": (3,)})
    assert result.parts == [tmp_path / "similarity.npy"]
    assert isinstance(result.table(), np.memmap)
    assert "similarity.npy: 3 rows x 3 columns" in repr(result)

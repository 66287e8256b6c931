"""Results as they are read back: folders, values of functions, and the exceptions that they raised."""

import dataclasses
import json
import pickle
import re
from pathlib import Path

import cloudpickle
import pytest

from raysm.client.job.handle import attach
from raysm.client.results.result import earlier_result, manifest_of
from raysm.client.source.function import Function
from raysm.client.submit import submit
from raysm.contract.result import EXCEPTION, FAILURE, VALUE, Failure, Manifest, ResultFile
from raysm.errors import InvalidRequest, JobFailed, ServiceError
from raysm.request import Script
from raysm.request.codec import to_json
from tests.support.client_jobs import M5, leave
from tests.support.sagemaker import refusal


def double(x):
    return 2 * x


@pytest.fixture
def call(remote):
    return submit(Function(double, 1), cluster=M5, on=remote.service)


MANIFEST = Manifest(
    job="j",
    workload={"kind": "similarity"},
    inputs={},
    files=(ResultFile(name="full.npy", shape=(2, 2), bytes=144, sha256="0", how_to_read="numpy.load('full.npy')"),),
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
    with pytest.raises(InvalidRequest, match=r"no file 'x'; it has full\.npy"):
        result.table("x")
    assert "full.npy: 2 x 2, 144 bytes" in repr(result)


def test_a_result_of_aws_is_kept_below_the_home_and_brought_once(remote, job, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSM_HOME", str(tmp_path / "home"))
    leave_matrix(remote, job, tmp_path)
    remote.sagemaker.end(job.name, "Completed")
    first = job.result()
    remote.s3.calls.clear()
    assert job.result().path == first.path == tmp_path / "home" / "results" / job.name
    assert not [name for name, _ in remote.s3.calls if name == "download_file"]


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


def test_a_result_of_another_task_is_left_alone(remote, script, tmp_path):
    first = ended(remote, script, name="topk", x=b"1")
    first.result(to=tmp_path / "out")
    second = ended(remote, script, name="pairs", y=b"2")
    said = f"is the result of {first.name}, not of 'pairs'; name another, or remove it"
    with pytest.raises(InvalidRequest, match=said):
        second.result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".")] == ["x"]
    assert first.result(to=tmp_path / "out") == tmp_path / "out"


def test_an_interrupted_replacement_leaves_no_file_of_the_old_result_behind_in_the_end(remote, script, tmp_path):
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


def test_a_manifest_that_names_files_elsewhere_has_none_of_them_removed(remote, script, tmp_path):
    (tmp_path / "mine").write_text("mine")
    first = ended(remote, script, x=b"1")
    leave(remote, first, "model/manifest.json", with_manifest(first.name, "x", "../mine", str(tmp_path / "mine")))
    first.result(to=tmp_path / "out")
    ended(remote, script, y=b"2").result(to=tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "mine"


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
    with pytest.raises(InvalidRequest, match="are not a result of raysm"):
        job.result(to=tmp_path / "mine")
    assert (tmp_path / "mine" / name).read_text() == '{"mine": true}'


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


def test_a_failed_job_raises_its_reason_and_the_traceback_that_it_left(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="ValueError: no")
    with pytest.raises(JobFailed, match=r"failed: ValueError: no") as caught:
        job.result()
    assert (caught.value.job, caught.value.reason) == (job.name, "ValueError: no")
    failure = Failure(error_type="ValueError", message="no", remote_traceback="Traceback: line 3\n")
    leave(remote, job, f"data/{FAILURE}", json.dumps(to_json(failure)).encode())
    error = pickle.loads(pickle.dumps(job.exception()))
    assert re.search("(?s)ValueError: no.*line 3", str(error))
    assert error.remote_traceback == failure.remote_traceback


class OwnError(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self):
        return OwnError, (self.code,)


def test_a_function_raises_its_own_exception_with_the_remote_traceback_as_cause(remote, call):
    failure = Failure(error_type="OwnError", message="code 3", remote_traceback="Traceback: in f\n")
    leave(remote, call, f"data/{FAILURE}", json.dumps(to_json(failure)).encode())
    leave(remote, call, f"data/{EXCEPTION}", cloudpickle.dumps(OwnError(3)))
    remote.sagemaker.end(call.name, "Failed", FailureReason="OwnError: code 3")
    with pytest.raises(OwnError) as caught:
        call.result()
    assert caught.value.code == 3
    assert isinstance(caught.value.__cause__, JobFailed)
    assert "Traceback: in f" in str(caught.value.__cause__)


@pytest.mark.parametrize("content", [b"", b"broken", cloudpickle.dumps(SystemExit(3))], ids=["none", "broken", "exit"])
def test_an_exception_that_cannot_be_had_is_a_failed_job(remote, call, content):
    leave(remote, call, f"data/{EXCEPTION}", content)
    remote.sagemaker.end(call.name, "Failed", FailureReason="SystemExit: 3")
    with pytest.raises(JobFailed, match="SystemExit: 3"):
        call.result()


def test_the_value_of_another_python_is_refused(remote, call):
    for tag in remote.sagemaker.jobs[call.name]["tags"]:
        tag["Value"] = "3.7" if tag["Key"] == "raysm:python" else tag["Value"]
    leave(remote, call, f"model/{VALUE}", pickle.dumps(1))
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(InvalidRequest, match=r"pickled by Python 3\.7, and this is.*under Python 3\.7"):
        attach(call.name, remote.service).result()


def test_a_value_that_is_gone_or_broken_says_so(remote, call):
    remote.sagemaker.end(call.name, "Completed")
    with pytest.raises(ServiceError, match="was it removed"):
        call.result()
    leave(remote, call, f"model/{VALUE}", b"broken")
    with pytest.raises(ServiceError, match="cannot be unpickled"):
        call.result()

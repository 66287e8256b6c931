import concurrent.futures
import dataclasses
import datetime
import io
import json
import pickle
import threading
import time
from pathlib import Path

import cloudpickle
import pytest

from raysm.client.chain import Chain
from raysm.client.description import SecondaryStatus, Status, read
from raysm.client.function import Function
from raysm.client.job import Job, attach
from raysm.client.listing import jobs
from raysm.client.records import task_of
from raysm.client.restart import next_name
from raysm.client.result_folder import begin_result, check_folder
from raysm.client.service import Service
from raysm.client.storage import Storage
from raysm.client.submit import submit
from raysm.contract import events
from raysm.contract.job_api import PROCESSING, TRAINING
from raysm.contract.result import EXCEPTION, FAILURE, VALUE, Failure, Manifest, ResultFile
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, JobStopped, NotDone, ServiceError
from raysm.request import Cluster, Limits, MetricDefinition, Script
from raysm.request.codec import to_json
from tests.support.sagemaker import QUICK, fake_local, refusal

NOW_MS = int(time.time() * 1000) - 60_000  # moto takes no lines of long ago

M5 = Cluster("ml.m5.large", count=2)


@pytest.fixture
def job(remote, script):
    return submit(Script(str(script)), cluster=M5, on=remote.service)


def double(x):
    return 2 * x


@pytest.fixture
def call(remote):
    return submit(Function(double, 1), cluster=M5, on=remote.service)


def leave(remote, job, name, content):
    Storage(remote.service).write(f"{job.outputs}/{name}", content)


# Status


def test_a_job_that_runs_is_not_done_and_one_that_completed_is(remote, job):
    assert (job.done(), job.running(), job.cancelled(), job.status) == (False, True, False, Status.IN_PROGRESS)
    remote.sagemaker.end(job.name, "Completed")
    assert (job.done(), job.running(), job.cancelled(), job.status) == (True, False, False, Status.COMPLETED)


def test_wait_returns_how_it_ended_after_as_many_polls_as_it_took(remote, script):
    changes = [{"SecondaryStatus": name} for name in ("Downloading", "Training", "Uploading")]
    remote.sagemaker.script.append([*changes, {"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}])
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    assert job.wait(5) is Status.COMPLETED
    assert remote.sagemaker.described == 4


def test_a_job_that_ended_is_not_asked_for_again(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    job.wait()
    before = remote.sagemaker.described
    assert (job.done(), job.status, job.secondary_status) == (True, "Completed", "Completed")
    assert remote.sagemaker.described == before


def test_a_status_that_nobody_knows_is_unknown_with_a_warning(remote, job):
    remote.sagemaker.jobs[job.name]["answer"] |= {"TrainingJobStatus": "Dreaming", "SecondaryStatus": "Snoring"}
    with pytest.warns(RuntimeWarning, match="does not know"):
        assert (job.status, job.secondary_status, job.done()) == (Status.UNKNOWN, SecondaryStatus.UNKNOWN, False)


def test_every_status_of_the_service_model_is_known():
    from botocore.loaders import Loader

    shapes = Loader().load_service_model("sagemaker", "service-2")["shapes"]
    known = {status.value for status in Status} | {status.value for status in SecondaryStatus}
    for shape in ("TrainingJobStatus", "ProcessingJobStatus", "SecondaryStatus"):
        assert set(shapes[shape]["enum"]) <= known, shape


def test_a_wait_that_takes_too_long_is_a_timeout_of_both_kinds(job):
    with pytest.raises(TimeoutError):
        job.wait(0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        job.result(0)
    with pytest.raises(NotDone, match="it goes on"):
        job.exception(0.01)


def test_a_wait_outlives_a_service_that_is_away_for_a_while(remote, job):
    remote.fail("describe_training_job", refusal("InternalFailure", "away"), times=3)
    remote.sagemaker.end(job.name, "Completed")
    assert job.wait(5) is Status.COMPLETED


def test_a_service_that_refuses_or_stays_away_ends_the_wait(remote, script):
    service = Service(
        remote.service.target, clients=remote.clients.__getitem__, pace=dataclasses.replace(QUICK, patience_s=0.02)
    )
    job = submit(Script(str(script)), cluster=M5, on=service)
    for code in ("AccessDeniedException", "ServiceUnavailable"):
        remote.fail("describe_training_job", refusal(code, "no"))
        with pytest.raises(ServiceError, match=code):
            job.wait(5)


# Ending it


def test_stop_asks_the_service_and_the_result_is_a_cancelled_error(remote, job):
    assert job.stop(5) is Status.STOPPED
    assert remote.sagemaker.stopped == [job.name]
    assert job.cancelled()
    for ask in (job.result, job.exception):
        with pytest.raises(concurrent.futures.CancelledError):
            ask()
        with pytest.raises(JobStopped):
            ask()


def test_what_has_ended_cannot_be_cancelled(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    assert job.cancel() is False
    assert remote.sagemaker.stopped == []


def test_a_job_that_ends_while_it_is_cancelled_is_no_error(remote, script):
    remote.sagemaker.script.append([{}, COMPLETED])
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    ended = "The request was rejected because the job is in status Completed"
    remote.fail("stop_training_job", refusal("ValidationException", ended))
    assert job.cancel() is False


def test_a_callback_is_called_once_the_job_has_ended(remote, job):
    called = concurrent.futures.Future()
    job.add_done_callback(called.set_result)
    remote.sagemaker.end(job.name, "Completed")
    assert called.result(5) is job


def test_a_callback_on_a_job_that_has_ended_is_called_at_once(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    seen = []
    job.add_done_callback(seen.append)
    assert seen == [job]


def test_a_callback_that_raises_hinders_no_other(remote, job, caplog):
    called = concurrent.futures.Future()
    job.add_done_callback(lambda job: 1 / 0)
    job.add_done_callback(called.set_result)
    remote.sagemaker.end(job.name, "Completed")
    assert called.result(5) is job
    assert "ZeroDivisionError" in caplog.text


def test_the_callbacks_of_a_job_that_was_deleted_are_called(remote, job):
    called = threading.Event()
    job.add_done_callback(lambda job: called.set())
    remote.sagemaker.jobs.clear()
    assert called.wait(5)


def test_a_callback_outlives_a_service_that_is_away_for_a_while(remote, job):
    called = concurrent.futures.Future()
    job.add_done_callback(called.set_result)
    away = remote.fail("describe_training_job", refusal("InternalFailure", "away"))
    assert away.happened.wait(5)
    away.end()
    remote.sagemaker.end(job.name, "Completed")
    assert called.result(5) is job


# Results


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


def test_a_result_without_a_manifest_is_replaced_as_a_whole_too(remote, script, tmp_path):
    ended(remote, script, old=b"1").result(to=tmp_path / "out")
    ended(remote, script, new=b"2").result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".")] == ["new"]


def test_a_result_of_another_task_is_left_alone(remote, script, tmp_path):
    first = ended(remote, script, name="topk", x=b"1")
    first.result(to=tmp_path / "out")
    second = ended(remote, script, name="pairs", y=b"2")
    said = f"holds the result of {first.name}, another task than 'pairs'; name another folder, or remove that one"
    with pytest.raises(InvalidRequest, match=said):
        second.result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".")] == ["x"]
    assert first.result(to=tmp_path / "out") == tmp_path / "out"


def test_an_interrupted_replacement_leaves_no_file_of_the_old_result_behind_in_the_end(remote, script, tmp_path):
    first, second = ended(remote, script, old=b"1"), ended(remote, script, new=b"2")
    first.result(to=tmp_path / "out")
    begin_result(tmp_path / "out", second.name, ["new"], check_folder(tmp_path / "out", second.name))
    second.result(to=tmp_path / "out")
    assert [name for name in names_in(tmp_path / "out") if not name.startswith(".")] == ["new"]


def test_a_manifest_that_names_files_elsewhere_has_none_of_them_removed(remote, script, tmp_path):
    (tmp_path / "mine").write_text("mine")
    first = ended(remote, script, x=b"1")
    leave(remote, first, "model/manifest.json", with_manifest(first.name, "x", "../mine", str(tmp_path / "mine")))
    first.result(to=tmp_path / "out")
    ended(remote, script, y=b"2").result(to=tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("job", "task"),
    [
        ("mine-20261122-020304-0123abcd", "mine"),
        ("mine-20261122-020304-0123abcd-r2", "mine"),
        (f"{'x' * 38}-20261122-020304-0123a-r12", "x" * 38),
        ("somebody-elses", "somebody-elses"),
    ],
)
def test_a_jobs_name_tells_its_task(job, task):
    assert task_of(job) == task


def test_a_result_of_this_machine_is_used_where_it_lies(local, script):
    job = submit(Script(str(script)), on=local.service)
    leave(local, job, "model/x", b"1")
    local.sagemaker.end(job.name, "Completed")
    assert job.result() == local.service.home / "data" / "default" / job.name / "output" / "model"


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
    with pytest.raises(InvalidRequest, match="is no result of raysm"):
        job.result(to=tmp_path / "mine")
    assert (tmp_path / "mine" / name).read_text() == '{"mine": true}'


def test_a_manifest_of_the_scripts_own_is_a_file_like_others(remote, job, tmp_path):
    leave(remote, job, "model/manifest.json", b'{"mine": true}')
    remote.sagemaker.end(job.name, "Completed")
    for _ in range(2):
        assert (job.result(to=tmp_path / "out") / "manifest.json").read_bytes() == b'{"mine": true}'


def test_a_script_that_leaves_nothing_has_no_result(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    assert job.result() is None


def test_an_archive_that_a_job_of_others_left_is_brought_as_it_is(remote, job, tmp_path):
    leave(remote, job, "model.tar.gz", b"tar")
    artifacts = {"S3ModelArtifacts": f"{job.outputs}/model.tar.gz"}
    remote.sagemaker.end(job.name, "Completed", ModelArtifacts=artifacts)
    assert (job.result(to=tmp_path / "out") / "model.tar.gz").read_bytes() == b"tar"


def test_the_result_of_a_processing_job_comes_from_its_output(remote, script, tmp_path):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind="processing")
    leave(remote, job, "model/x", b"1")
    remote.sagemaker.end(job.name, "Completed")
    assert (job.result(to=tmp_path / "out") / "x").read_bytes() == b"1"


def test_a_failed_job_raises_its_reason(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="ValueError: no")
    with pytest.raises(JobFailed, match=r"failed: ValueError: no") as caught:
        job.result()
    assert (caught.value.job, caught.value.reason) == (job.name, "ValueError: no")
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), JobFailed)


def test_a_failed_job_that_left_its_traceback_raises_with_it(remote, job):
    failure = Failure(error_type="ValueError", message="no", remote_traceback="Traceback: line 3\n")
    leave(remote, job, f"data/{FAILURE}", json.dumps(to_json(failure)).encode())
    remote.sagemaker.end(job.name, "Failed", FailureReason="AlgorithmError: ExecuteUserScriptError")
    error = job.exception()
    assert "ValueError: no" in str(error)
    assert "line 3" in str(error)
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


def test_outputs_are_inputs_of_the_next_job(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    prefix = f"s3://{remote.service.bucket.name}/raysm/default/{job.name}/output"
    names = ("model", "result", "data", "data/a.npy")
    assert [job.output(name).uri for name in names] == [
        f"{prefix}/model/",
        f"{prefix}/model/",
        f"{prefix}/data/",
        f"{prefix}/data/a.npy",
    ]
    with pytest.raises(InvalidRequest, match="got 'logs'"):
        job.output("logs")


def test_a_job_that_failed_has_no_outputs_to_go_on_with(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="x")
    with pytest.raises(JobFailed):
        job.output("data")


# Follow-ups


def long_job(remote, script, restarts=2):
    remote.sagemaker.script = [[EXCEEDED] for _ in range(restarts)]
    return submit(Script(str(script)), cluster=M5, on=remote.service, limits=Limits(max_restarts=restarts))


EXCEEDED = {"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxRuntimeExceeded"}
COMPLETED = {"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}


def test_a_job_that_ran_too_long_goes_on_from_its_checkpoints(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([COMPLETED])
    first = job.name
    assert job.wait(5) is Status.COMPLETED
    names = [call["TrainingJobName"] for call in remote.sagemaker.sent]
    assert names == [first, f"{first}-r1", f"{first}-r2"]
    assert job.name == names[-1]
    calls = [
        {key: item for key, item in call.items() if key not in ("TrainingJobName", "Tags")}
        for call in remote.sagemaker.sent
    ]
    assert calls[0] == calls[1] == calls[2]


def test_no_more_follow_ups_than_allowed_are_sent(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([EXCEEDED])
    with pytest.raises(JobFailed, match="MaxRuntimeExceeded.*max_restarts"):
        job.result(5)
    assert len(remote.sagemaker.sent) == 3
    assert not job.cancelled()


def test_a_job_without_restarts_is_not_followed(remote, script):
    remote.sagemaker.script = [[EXCEEDED]]
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    with pytest.raises(JobFailed, match="MaxRuntimeExceeded"):
        job.result(5)
    assert len(remote.sagemaker.sent) == 1


def test_asking_whether_it_is_done_sends_nothing(remote, script):
    job = long_job(remote, script)
    assert not job.done()
    assert not job.done()
    assert len(remote.sagemaker.sent) == 1


def test_two_watchers_send_one_follow_up(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([{}, {}, COMPLETED])
    other = attach(job.name, remote.service)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert [item.result() for item in [pool.submit(each.wait, 5) for each in (job, other)]] == ["Completed"] * 2
    assert len(remote.sagemaker.sent) == 2


def test_a_follow_up_that_is_there_is_not_created_again(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([COMPLETED])
    other = attach(job.name, remote.service)
    job.wait(5)
    calls = remote.clients["sagemaker"].calls
    calls.clear()
    assert other.wait(5) is Status.COMPLETED
    assert ("create_training_job", "") not in calls


def test_a_job_that_is_cancelled_between_two_runs_has_no_further_one(remote, script):
    job = long_job(remote, script)
    assert not job.done()
    assert job.cancel()
    assert remote.sagemaker.stopped == []  # the run that is known has ended: to stop it would be refused
    assert job.wait(5) is Status.STOPPED
    assert job.cancelled()
    assert len(remote.sagemaker.sent) == 1
    with pytest.raises(JobStopped):
        job.result()


def test_a_stopped_job_is_not_followed(remote, script):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, limits=Limits(max_restarts=3))
    job.stop()
    assert len(remote.sagemaker.sent) == 1


def test_the_name_of_a_follow_up_fits_however_long_the_first_one_is(remote, job):
    answer = remote.sagemaker.jobs[job.name]["answer"] | EXCEEDED | {"TrainingJobName": "a" * 63}
    name = next_name(read(TRAINING, answer), {"raysm:max-restarts": "12", "raysm:restart": "11"})
    assert name == "a" * 59 + "-r12"


def test_a_run_that_went_on_counts_as_done_for_the_next_one(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([COMPLETED])
    job.wait(5)
    again = submit(Script(str(script)), cluster=M5, on=remote.service, if_done="skip")
    assert again.name == job.name


# Logs


def test_the_lines_of_all_instances_come_in_the_order_of_their_times(remote, job):
    remote.write_log(job.name, "algo-1", [(NOW_MS + 1000, "a"), (NOW_MS + 3000, "c")])
    remote.write_log(job.name, "algo-2", [(NOW_MS + 2000, "b"), (NOW_MS + 4000, "d")])
    assert [(line.host, line.text) for line in job.lines()] == [
        ("algo-1", "a"),
        ("algo-2", "b"),
        ("algo-1", "c"),
        ("algo-2", "d"),
    ]
    assert [line.text for line in job.lines(instance="algo-2")] == ["b", "d"]


def test_a_long_log_is_read_page_by_page(remote, job):
    times = range(NOW_MS, NOW_MS + 12_000)
    for begin in range(0, 12_000, 10_000):
        remote.write_log(job.name, "algo-1", [(stamp, str(stamp)) for stamp in times[begin : begin + 10_000]])
    assert [line.text for line in job.lines()] == [str(stamp) for stamp in times]


def test_the_logs_of_another_job_whose_name_begins_the_same_are_not_read(remote, job):
    remote.write_log(job.name + "-r1", "algo-1", [(NOW_MS, "other")])
    assert list(job.lines()) == []


def test_before_the_first_line_there_is_nothing_to_read(job):
    assert list(job.lines()) == []


def test_following_yields_what_comes_until_the_job_has_ended(remote, job):
    seen = []
    remote.write_log(job.name, "algo-1", [(NOW_MS, "first")])
    for line in job.lines(follow=True):
        seen.append(line.text)
        if line.text == "first":
            remote.write_log(job.name, "algo-2", [(NOW_MS + 1000, "second")])
        else:
            remote.sagemaker.end(job.name, "Completed")
    assert seen == ["first", "second"]


def test_following_goes_over_to_the_follow_up(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([{}, {}, COMPLETED])
    remote.write_log(job.name, "algo-1", [(NOW_MS, "one")])
    remote.write_log(job.name + "-r1", "algo-1", [(NOW_MS + 1000, "two")])
    assert "two" in [line.text for line in job.lines(follow=True)]


def test_following_shows_every_job_of_a_chain(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([COMPLETED])
    for index, name in enumerate((job.name, f"{job.name}-r1", f"{job.name}-r2")):
        remote.write_log(name, "algo-1", [(NOW_MS + index, f"run {index}")])
    assert [line.text for line in job.lines(follow=True)] == ["run 0", "run 1", "run 2"]


def write_losses(remote, names):
    """Write a progress and a loss into the log of each job of a chain."""
    for index, name in enumerate(names):
        told = (
            events.Progress(phase="train", done=index + 1, total=3, unit="epochs"),
            events.Metric(name="loss", value=float(index), step=index, time_s=100.0 + index),
        )
        remote.write_log(name, "algo-1", [(NOW_MS + index * 10 + at, events.line(one)) for at, one in enumerate(told)])


def chain_of_three(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([COMPLETED])
    write_losses(remote, (job.name, f"{job.name}-r1", f"{job.name}-r2"))
    return job


def losses_of(job):
    return [metric.value for metric in job.metrics()]


@pytest.mark.parametrize("follow", [False, True])
def test_after_the_wait_the_whole_chain_is_told(remote, script, follow):
    job = chain_of_three(remote, script)
    job.wait(5)
    assert len(list(job.lines(follow=follow))) == 6
    told = [event.value for event in job.events(follow=follow) if isinstance(event, events.Metric)]
    assert told == losses_of(job) == [0.0, 1.0, 2.0]
    assert job.progress()["train"].done == 3


def test_metrics_go_on_with_the_follow_ups_that_others_send(remote, script):
    job = chain_of_three(remote, script)
    assert losses_of(job) == [0.0]
    attach(job.name, remote.service).wait(5)
    assert losses_of(job) == [0.0, 1.0, 2.0]
    assert len(list(job.lines())) == 6


def test_a_follow_up_that_is_attached_tells_of_the_first_job_too(remote, script):
    job = chain_of_three(remote, script)
    job.wait(5)
    again = attach(job.name, remote.service)
    assert job.name.endswith("-r2")
    assert losses_of(again) == [0.0, 1.0, 2.0]
    assert len(list(again.lines())) == 6


def test_what_the_service_found_in_the_first_job_is_kept_after_its_follow_up(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([COMPLETED])
    job.wait(5)
    for value, (_, found) in enumerate(sorted(remote.sagemaker.jobs.items())):
        final = {"MetricName": "acc", "Value": float(value), "Timestamp": datetime.datetime.fromtimestamp(value)}
        found["answer"]["FinalMetricDataList"] = [final]
    assert losses_of(attach(job.name, remote.service)) == [0.0, 1.0]


def test_the_handle_stays_the_same_when_it_goes_over_to_a_follow_up(remote, script):
    job = chain_of_three(remote, script)
    kept = {job: "mine"}
    first = attach(job.name, remote.service)
    job.wait(5)
    assert kept[job] == "mine"
    assert kept[attach(job.name, remote.service)] == kept[first] == "mine"


def test_jobs_differ_in_their_hashes(remote, script):
    names = [f"job-{number}" for number in range(100)]
    assert len({hash(Job(Chain(name, service=remote.service, api=TRAINING))) for name in names}) > 90


class CountedLogs:
    """The log service, which counts the events that it hands out."""

    def __init__(self, logs):
        self._logs = logs
        self.handed_out = 0

    def __getattr__(self, name):
        return getattr(self._logs, name)

    def get_log_events(self, **call):
        page = self._logs.get_log_events(**call)
        self.handed_out += len(page["events"])
        return page


@pytest.fixture
def counted(remote):
    logs = CountedLogs(remote.logs)
    clients = {**remote.clients, "logs": logs}
    return logs, Service(remote.service.target, clients=clients.__getitem__, pace=QUICK)


def test_progress_and_metrics_are_read_once_however_often_they_are_asked_for(remote, counted, script):
    logs, service = counted
    job = submit(Script(str(script)), cluster=M5, on=service)
    for step in range(20):
        line = events.line(events.Metric(name="loss", value=1.0 / (1 + step), step=step, time_s=float(step)))
        remote.write_log(job.name, "algo-1", [(NOW_MS + step, line)])
        assert len(job.metrics()) == step + 1
        assert job.progress() == {}
    assert logs.handed_out == 20


def test_a_job_that_has_ended_is_not_read_again_for_its_metrics(remote, counted, script):
    logs, service = counted
    job = submit(Script(str(script)), cluster=M5, on=service)
    remote.write_log(job.name, "algo-1", [(NOW_MS, events.line(events.Metric(name="loss", value=1.0)))])
    remote.sagemaker.end(job.name, "Completed")
    for _ in range(5):
        assert [metric.value for metric in job.metrics()] == [1.0]
    assert logs.handed_out == 1


def test_late_lines_of_a_job_come_although_its_follow_up_runs(remote, script):
    service = Service(
        remote.service.target, clients=remote.clients.__getitem__, pace=dataclasses.replace(QUICK, late_s=600.0)
    )
    remote.sagemaker.script = [[EXCEEDED], [{}]]
    job = submit(Script(str(script)), cluster=M5, on=service, limits=Limits(max_restarts=1))
    first = job.name
    remote.write_log(f"{first}-r1", "algo-1", [(NOW_MS, "of the follow-up")])
    lines = job.lines(follow=True)
    assert next(lines).text == "of the follow-up"
    remote.write_log(first, "algo-1", [(NOW_MS, "late")])
    assert next(lines).text == "late"


def test_an_instance_that_the_job_has_not_is_refused_with_those_that_it_has(remote, job):
    for ask in (job.lines, job.logs):
        with pytest.raises(InvalidRequest, match=rf"no instance 'algo-9': {job.name} has algo-1, algo-2$"):
            ask(instance="algo-9")


def test_of_many_instances_the_first_and_the_last_are_named(remote, script):
    job = submit(Script(str(script)), cluster=Cluster("ml.m5.large", count=20), on=remote.service)
    with pytest.raises(InvalidRequest, match="has algo-1 to algo-20"):
        job.lines(instance="algo-21")


def test_following_outlives_a_log_service_that_is_away_for_a_while(remote, job):
    remote.fail("get_log_events", refusal("ServiceUnavailable", "away"), after=3, times=1)
    for host, times in (("algo-1", (0, 2, 4)), ("algo-2", (1, 3, 5))):
        remote.write_log(job.name, host, [(NOW_MS + time_ms, f"{time_ms}") for time_ms in times])
    remote.sagemaker.end(job.name, "Completed")
    lines = attach(job.name, remote.service).lines(follow=True)
    assert sorted(line.text for line in lines) == ["0", "1", "2", "3", "4", "5"]


def test_the_log_of_a_processing_job_lies_in_its_own_group(remote, script):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind="processing")
    remote.write_log(job.name, "algo-1", [(NOW_MS, "x")], group="/aws/sagemaker/ProcessingJobs")
    assert [line.text for line in job.lines()] == ["x"]


EVENTS = [
    events.State(name="joined", host="algo-2", count=2, total=2),
    events.Progress(phase="similarity", done=1, total=2, unit="rows", time_s=1.0),
    events.Progress(phase="similarity", done=2, total=2, unit="rows", time_s=2.0),
    events.Metric(name="loss", value=0.5, step=3, time_s=1.0),
]


def write_events(remote, job):
    lines = [(NOW_MS + index, events.line(event)) for index, event in enumerate(EVENTS)]
    remote.write_log(job.name, "algo-1", [*lines, (NOW_MS + 9, "hello")])


def test_printed_logs_say_the_events_in_words(remote, job):
    write_events(remote, job)
    out = io.StringIO()
    job.logs(to=out)
    assert out.getvalue().splitlines() == [
        "algo-2 joined: 2 of 2 instances",
        "similarity: 100% (2 of 2 rows, 1 rows/s)",
        "algo-1 | hello",
    ]


def test_metrics_and_progress_that_are_printed_without_being_called_show_what_there_is(remote, job):
    write_events(remote, job)
    assert "loss: 0.5 at step 3" in str(job.metrics)
    assert "similarity" in str(job.progress)


def test_metrics_are_asked_for_by_their_names(remote, job):
    told = [events.Metric(name=name, value=1.0) for name in ("loss", "val/loss", "rate")]
    remote.write_log(job.name, "algo-1", [(NOW_MS, events.line(metric)) for metric in told])
    assert [metric.name for metric in job.metrics("loss")] == ["loss"]
    assert job.metrics("*loss").names == ["loss", "val/loss"]


def test_metrics_are_printed_where_they_are_asked_for(remote, job):
    metrics = [
        events.Metric(name="loss", value=0.5, step=3),
        events.Metric(name="memory_bytes", value=3524636672.0, host="algo-2"),
        events.Metric(name="loss", value=0.25, step=4),
    ]
    remote.write_log(job.name, "algo-1", [(NOW_MS + at, events.line(metric)) for at, metric in enumerate(metrics)])
    out = io.StringIO()
    job.logs(metrics=True, to=out)
    assert out.getvalue().splitlines() == ["metrics at step 4: loss = 0.25", "algo-2: memory_bytes = 3,524,636,672"]


def test_events_progress_and_metrics_are_read_from_the_log(remote, job):
    write_events(remote, job)
    assert list(job.events()) == EVENTS
    assert job.progress() == {"similarity": EVENTS[2]}
    final = {"MetricName": "acc", "Value": 0.9, "Timestamp": datetime.datetime.fromtimestamp(2, datetime.UTC)}
    remote.sagemaker.end(job.name, "Completed", FinalMetricDataList=[final])
    assert [(metric.name, metric.value) for metric in job.metrics()] == [("loss", 0.5), ("acc", 0.9)]


def test_the_series_of_a_metric_definition_comes_from_cloudwatch(remote, script):
    metrics = [MetricDefinition("loss", "loss=(.*)"), MetricDefinition("never", "never=(.*)")]
    job = submit(Script(str(script)), cluster=M5, on=remote.service, metrics=metrics)
    now = datetime.datetime.now(datetime.UTC)
    start = now - datetime.timedelta(minutes=10)
    remote.sagemaker.jobs[job.name]["answer"] |= {"CreationTime": start, "TrainingStartTime": start}
    data = [
        {"MetricName": "loss", "Value": value, "Timestamp": start + datetime.timedelta(minutes=minute),
         "Dimensions": [{"Name": "TrainingJobName", "Value": job.name}]}
        for minute, value in ((5, 0.25), (1, 0.5))
    ]  # fmt: skip
    remote.clients["cloudwatch"].put_metric_data(Namespace="/aws/sagemaker/TrainingJobs", MetricData=data)
    final = [{"MetricName": "loss", "Value": 0.25, "Timestamp": now}]
    remote.sagemaker.end(job.name, "Completed", FinalMetricDataList=final, TrainingEndTime=now)
    assert [(metric.name, metric.value) for metric in job.metrics()] == [("loss", 0.5), ("loss", 0.25)]


# For people, and from elsewhere


def test_a_job_is_found_again_by_its_name(remote, job):
    again = attach(job.name, remote.service)
    assert again == job
    assert again.tags["raysm:workload"] == "script"
    assert again.tags["raysm:project"] == "default"


def test_a_processing_job_is_found_again_too(remote, script):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind="processing")
    assert attach(job.name, remote.service).api is PROCESSING


def test_a_job_that_is_nowhere_is_an_error_that_says_where_it_was_sought(remote):
    with pytest.raises(JobNotFound, match="no job 'nobody' in eu-west-1"):
        attach("nobody", remote.service)


def test_jobs_of_both_kinds_are_listed_the_latest_first(remote, script):
    made = [
        submit(Script(str(script)), cluster=M5, on=remote.service, kind=kind).name
        for kind in ("training", "processing", "training")
    ]
    assert [job.name for job in jobs(remote.service)] == made[::-1]
    assert [job.name for job in jobs(remote.service, limit=1)] == made[2:]
    assert jobs(remote.service, contains="nothing") == []


def test_the_repr_says_what_a_person_wants_to_know(remote, job):
    assert "InProgress (Starting) · 2 × ml.m5.large · sent" in repr(job)
    remote.sagemaker.end(job.name, "Failed", FailureReason="ValueError: no")
    assert "Failed" in repr(job)
    assert repr(job).endswith("ValueError: no")


def test_a_job_that_waits_says_what_for(remote, job):
    remote.sagemaker.jobs[job.name]["answer"].update(
        SecondaryStatus="Pending", SecondaryStatusTransitions=[{"Status": "Pending", "StatusMessage": "waits for x"}]
    )
    assert repr(job).endswith("\nwaits for x")
    assert [(found.secondary, found.message) for found in jobs(remote.service)] == [("Pending", "waits for x")]


@pytest.mark.parametrize("kind", ["training", "processing"])
@pytest.mark.parametrize(
    ("cluster", "shown"),
    [
        (Cluster(count=2), " · 2 local instances · "),
        (Cluster(), " · 1 local instance · "),
        (Cluster("ml.m5.large", count=2), " · 2 × ml.m5.large · "),
    ],
    ids=["two", "one", "a type that was chosen"],
)
def test_instances_of_this_machine_have_no_type_that_nobody_chose(tmp_path, script, kind, cluster, shown):
    with fake_local(tmp_path) as here:
        job = submit(Script(str(script)), cluster=cluster, on=here.service, kind=kind)
        again = attach(job.name, here.service)
        assert shown in repr(job)
        assert shown in repr(again)
        assert shown.strip(" ·") in job._repr_html_()


def test_the_html_is_escaped_and_leads_to_the_console(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="<script>alert(1)</script> & more")
    text = job._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert f"https://eu-west-1.console.aws.amazon.com/sagemaker/home?region=eu-west-1#/jobs/{job.name}" in text


def test_a_repr_never_raises(remote, job):
    remote.fail("describe_training_job", refusal("InternalFailure", "away"))
    assert "Unknown" in repr(job)
    assert job.name in job._repr_html_()

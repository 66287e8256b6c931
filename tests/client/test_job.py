import concurrent.futures
import dataclasses
import threading

import pytest

from raysm.client.job.chain import Chain, next_name
from raysm.client.job.description import Status, read
from raysm.client.job.handle import Job, attach
from raysm.client.job.listing import jobs
from raysm.client.job.records import task_of
from raysm.client.service import Service
from raysm.client.submit import submit
from raysm.contract.job_api import PROCESSING, TRAINING
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, JobStopped, NotDone, ServiceError
from raysm.request import Script
from tests.support.client_jobs import COMPLETED, EXCEEDED, M5, long_job
from tests.support.sagemaker import QUICK, refusal

# Status


def test_a_job_that_runs_is_not_done_and_one_that_completed_is(remote, job):
    assert (job.done(), job.running(), job.cancelled(), job.status) == (False, True, False, Status.IN_PROGRESS)
    remote.sagemaker.end(job.name, "Completed")
    assert (job.done(), job.running(), job.cancelled(), job.status) == (True, False, False, Status.COMPLETED)


def test_wait_returns_how_it_ended_after_as_many_polls_as_it_took(remote, script):
    changes = [{"SecondaryStatus": name} for name in ("Downloading", "Training", "Uploading")]
    remote.sagemaker.script.append([*changes, {"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}])
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    assert job.wait(60) is Status.COMPLETED
    assert remote.sagemaker.described == 4


def test_a_job_that_ended_is_not_asked_for_again(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    job.wait()
    before = remote.sagemaker.described
    assert (job.done(), job.status, job.secondary_status) == (True, "Completed", "Completed")
    assert remote.sagemaker.described == before


def test_a_folder_in_the_place_of_the_timeout_is_refused_with_the_words_that_bring_it_there(job, tmp_path):
    with pytest.raises(InvalidRequest, match=r"timeout is a number of seconds, got 'out'; .*: result\(to='out'\)$"):
        job.result("out")
    for waits in (job.wait, job.exception, job.result):
        with pytest.raises(InvalidRequest, match="timeout is a number of seconds"):
            waits(tmp_path)


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
    assert job.wait(60) is Status.COMPLETED


def test_a_service_that_refuses_or_stays_away_ends_the_wait(remote, script):
    service = Service(
        remote.service.target, clients=remote.clients.__getitem__, polling=dataclasses.replace(QUICK, patience_s=0.02)
    )
    job = submit(Script(str(script)), cluster=M5, on=service)
    for code in ("AccessDeniedException", "ServiceUnavailable"):
        remote.fail("describe_training_job", refusal(code, "no"))
        with pytest.raises(ServiceError, match=code):
            job.wait(60)


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
    assert called.result(60) is job


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
    assert called.result(60) is job
    assert "ZeroDivisionError" in caplog.text


def test_the_callbacks_of_a_job_that_was_deleted_are_called(remote, job):
    called = threading.Event()
    job.add_done_callback(lambda job: called.set())
    remote.sagemaker.jobs.clear()
    assert called.wait(60)


def test_a_callback_outlives_a_service_that_is_away_for_a_while(remote, job):
    called = concurrent.futures.Future()
    job.add_done_callback(called.set_result)
    away = remote.fail("describe_training_job", refusal("InternalFailure", "away"))
    assert away.happened.wait(60)
    away.end()
    remote.sagemaker.end(job.name, "Completed")
    assert called.result(60) is job


# Results


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


def test_the_name_of_a_follow_up_fits_however_long_the_first_one_is(remote, job):
    answer = remote.sagemaker.jobs[job.name]["answer"] | EXCEEDED | {"TrainingJobName": "a" * 63}
    name = next_name(read(TRAINING, answer), {"raysm:max-restarts": "12", "raysm:restart": "11"})
    assert name == "a" * 59 + "-r12"


def test_a_run_that_went_on_counts_as_done_for_the_next_one(remote, script):
    job = long_job(remote, script, restarts=1)
    remote.sagemaker.script.append([COMPLETED])
    job.wait(60)
    again = submit(Script(str(script)), cluster=M5, on=remote.service, if_done="skip")
    assert again.name == job.name


def test_the_handle_stays_the_same_when_it_goes_over_to_a_follow_up(remote, script):
    job = long_job(remote, script)
    remote.sagemaker.script.append([COMPLETED])
    kept = {job: "mine"}
    first = attach(job.name, remote.service)
    job.wait(60)
    assert kept[job] == "mine"
    assert kept[attach(job.name, remote.service)] == kept[first] == "mine"


def test_jobs_differ_in_their_hashes(remote, script):
    names = [f"job-{number}" for number in range(100)]
    assert len({hash(Job(Chain(name, service=remote.service, api=TRAINING))) for name in names}) > 90


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


def test_a_job_that_waits_says_what_for(remote, job):
    remote.sagemaker.jobs[job.name]["answer"].update(
        SecondaryStatus="Pending", SecondaryStatusTransitions=[{"Status": "Pending", "StatusMessage": "waits for x"}]
    )
    assert repr(job).endswith("\nwaits for x")
    assert [(found.secondary, found.message) for found in jobs(remote.service)] == [("Pending", "waits for x")]


def test_a_repr_never_raises(remote, job):
    remote.fail("describe_training_job", refusal("InternalFailure", "away"))
    assert "Unknown" in repr(job)
    assert job.name in job._repr_html_()

import concurrent.futures
import dataclasses
import datetime
import io
import re

import pytest

from raysm.core.client.job.description import Status
from raysm.core.client.job.listing import find_all, find_job, find_running, jobs
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.submit import submit
from raysm.core.protocol import events
from raysm.core.request import MetricDefinition
from raysm.errors import InvalidRequest, JobNotFound, JobStopped, NotDone, ServiceError
from raysm.features.script.request import Script
from raysm.features.session.request import SessionWorkload
from tests.support.client_jobs import COMPLETED, M5, NOW_MS, leave
from tests.support.sagemaker import QUICK, refusal

# Status


def test_a_job_that_runs_is_not_done_and_one_that_completed_is(remote, job):
    assert (job.done(), job.running(), job.cancelled(), job.status) == (
        False,
        True,
        False,
        Status.IN_PROGRESS,
    )
    remote.sagemaker.end(job.name, "Completed")
    assert (job.done(), job.running(), job.cancelled(), job.status) == (
        True,
        False,
        False,
        Status.COMPLETED,
    )


def test_a_folder_in_the_place_of_the_timeout_is_refused_with_the_words_that_bring_it_there(
    job, tmp_path
):
    with pytest.raises(InvalidRequest, match=r"timeout.*'out'.*result\(to='out'\)$"):
        job.result("out")
    for waits in (job.wait, job.exception, job.result):
        with pytest.raises(InvalidRequest, match=f"timeout.*{re.escape(str(tmp_path))}"):
            waits(tmp_path)


def test_a_wait_that_takes_too_long_is_a_timeout_of_both_kinds(job):
    with pytest.raises(TimeoutError):
        job.wait(0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        job.result(0)
    with pytest.raises(NotDone, match=rf"{job.name} .*0\.01 s"):
        job.exception(0.01)


def test_a_wait_outlives_a_service_that_is_away_for_a_while(remote, job):
    remote.fail("describe_training_job", refusal("InternalFailure", "away"), times=3)
    remote.sagemaker.end(job.name, "Completed")
    assert job.wait(60) is Status.COMPLETED


def test_a_service_that_refuses_or_stays_away_ends_the_wait(remote, script):
    service = Service(
        remote.service.target,
        clients=remote.clients.__getitem__,
        polling=dataclasses.replace(QUICK, patience_s=0.02),
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


def test_a_job_that_was_stopped_says_how_to_fetch_what_it_left(remote, job):
    leave(remote, job, "data/raysm/failure.json", b"{}")
    job.stop(5)
    with pytest.raises(JobStopped, match=f"{job.name} was stopped$"):
        job.result()
    leave(remote, job, "model/model.pt", b"1")
    state = job.describe().answer["CheckpointConfig"]["S3Uri"].rstrip("/")
    Storage(remote.service).write(f"{state}/algo-1/epoch.txt", b"7")
    with pytest.raises(
        JobStopped, match=f"model and state.*raysm result {job.name} --what model --out"
    ):
        job.result()


def test_a_job_that_ends_while_it_is_cancelled_is_no_error(remote, script):
    remote.sagemaker.script.append([{}, COMPLETED])
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    ended = "The request was rejected because the job is in status Completed"
    remote.fail("stop_training_job", refusal("ValidationException", ended))
    assert job.cancel() is False


def test_a_callback_that_raises_hinders_no_other(remote, job, caplog):
    called = concurrent.futures.Future()
    job.add_done_callback(lambda job: 1 / 0)
    job.add_done_callback(called.set_result)
    remote.sagemaker.end(job.name, "Completed")
    assert called.result(60) is job
    assert "ZeroDivisionError" in caplog.text


def test_a_job_that_waits_says_what_for(remote, job):
    remote.sagemaker.jobs[job.name]["answer"].update(
        SecondaryStatus="Pending",
        SecondaryStatusTransitions=[{"Status": "Pending", "StatusMessage": "waits for x"}],
    )
    assert repr(job).endswith("\nwaits for x")
    assert [(found.secondary, found.message) for found in jobs(remote.service)] == [
        ("Pending", "waits for x")
    ]


def test_a_repr_never_raises(remote, job):
    remote.fail("describe_training_job", refusal("InternalFailure", "away"))
    assert "Unknown" in repr(job)
    assert job.name in job._repr_html_()


EVENTS = [
    events.State(name="joined", host="algo-2", count=2, total=2),
    events.Progress(phase="similarity", done=1, total=2, unit="rows", time_s=1.0),
    events.Progress(phase="similarity", done=2, total=2, unit="rows", time_s=2.0),
    events.Metric(name="loss", value=0.5, step=3, time_s=1.0),
]


def write_events(remote, job):
    lines = [(NOW_MS + index, events.line(event)) for index, event in enumerate(EVENTS)]
    remote.write_log(job.name, "algo-1", [*lines, (NOW_MS + 9, "hello")])


def test_of_a_long_log_only_the_last_lines_are_printed(remote, job):
    lines = [(NOW_MS + at, f"line {at}") for at in range(5)]
    remote.write_log(job.name, "algo-1", [*lines, (NOW_MS + 9, events.line(EVENTS[-1]))])
    out = io.StringIO()
    job.logs(tail=2, to=out)
    assert out.getvalue().splitlines() == ["algo-1 | line 3", "algo-1 | line 4"]
    failed = [
        (NOW_MS + 9, "raysm: algo-1 failed: E"),
        (NOW_MS + 9, events.line(events.State(name="failed", host="algo-1", detail="E"))),
    ]
    remote.write_log(job.name, "algo-1", failed)
    job.logs(tail=2, to=(out := io.StringIO()))
    assert out.getvalue().splitlines() == ["algo-1 | line 4", "algo-1 | raysm: algo-1 failed: E"]
    followed = job.lines(tail=1, follow=True)
    assert next(followed).text == "raysm: algo-1 failed: E"
    remote.write_log(job.name, "algo-1", [(NOW_MS + 10, "later")])
    assert next(followed).text == "later"
    with pytest.raises(InvalidRequest, match="tail.*got -1"):
        job.lines(tail=-1)


def test_events_progress_and_metrics_are_read_from_the_log(remote, job):
    write_events(remote, job)
    assert list(job.events()) == EVENTS
    assert job.progress() == {"similarity": EVENTS[2]}
    final = {
        "MetricName": "acc",
        "Value": 0.9,
        "Timestamp": datetime.datetime.fromtimestamp(2, datetime.UTC),
    }
    remote.sagemaker.end(job.name, "Completed", FinalMetricDataList=[final])
    assert [(metric.name, metric.value) for metric in job.metrics()] == [
        ("loss", 0.5),
        ("acc", 0.9),
    ]


def test_the_values_of_a_metric_definition_are_those_of_the_log_each_with_its_time(remote, script):
    job = submit(
        Script(str(script)),
        cluster=M5,
        on=remote.service,
        metrics=[MetricDefinition("loss", "loss=(.*)")],
    )
    texts = ["loss=0.5", "other", "loss=0.0121", "loss=nan"]
    # Two lines of one millisecond are two values.
    times = [NOW_MS, NOW_MS, NOW_MS, NOW_MS + 5]
    remote.write_log(job.name, "algo-1", list(zip(times, texts, strict=True)))
    found = job.metrics()
    assert [(metric.time_s, repr(metric.value)) for metric in found] == [
        (NOW_MS / 1000, "0.5"),
        (NOW_MS / 1000, "0.0121"),
        ((NOW_MS + 5) / 1000, "nan"),
    ]
    assert [list(values) for _, _, values in found.rows()] == [["loss"]] * 3


def test_a_reported_metric_that_a_definition_finds_too_has_each_value_once(remote, script):
    regex = '"name": "rate", "value": ([0-9.]+)'
    job = submit(
        Script(str(script)),
        cluster=M5,
        on=remote.service,
        metrics=[MetricDefinition("rate", regex)],
    )
    remote.write_log(
        job.name, "algo-1", [(NOW_MS, events.line(events.Metric(name="rate", value=5.0, step=1)))]
    )
    assert [(metric.value, metric.step) for metric in job.metrics("rate")] == [(5.0, 1)]


def test_without_a_log_the_series_of_a_metric_definition_comes_from_cloudwatch(remote, script):
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
    remote.clients["cloudwatch"].put_metric_data(
        Namespace="/aws/sagemaker/TrainingJobs", MetricData=data
    )
    final = [{"MetricName": "loss", "Value": 0.25, "Timestamp": now}]
    remote.sagemaker.end(job.name, "Completed", FinalMetricDataList=final, TrainingEndTime=now)
    found = job.metrics()
    assert [(metric.name, metric.value) for metric in found] == [("loss", 0.5), ("loss", 0.25)]
    assert found.minute_means == {"loss"}


def test_the_repr_says_what_a_person_wants_to_know(remote, job):
    assert "InProgress (Starting) · 2 × ml.m5.large · sent" in repr(job)
    remote.sagemaker.end(job.name, "Failed", FailureReason="ValueError: no")
    assert "Failed" in repr(job)
    assert repr(job).endswith("ValueError: no")


def test_the_html_is_escaped_and_leads_to_the_console(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="<script>alert(1)</script> & more")
    text = job._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert (
        f"https://eu-west-1.console.aws.amazon.com/sagemaker/home?region=eu-west-1#/jobs/{job.name}"
        in text
    )


def test_why_a_job_waits_is_asked_for_of_those_that_wait_alone(remote, job):
    assert [listed.message for listed in jobs(remote.service)] == [""]
    assert remote.sagemaker.described == 0


def test_the_latest_job_that_runs_is_found_by_the_name_that_its_user_gave_it(remote, script):
    first, second = (
        submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2)
    )
    assert first.name != second.name
    found = find_job("digits", remote.service)
    assert found in (first, second)
    remote.sagemaker.end(found.name, "Completed")
    assert find_job("digits", remote.service) in {first, second} - {found}


def test_a_job_is_found_by_a_name_that_is_longer_than_the_part_that_its_own_has(remote, script):
    names = [f"{'digits' * 9}-{letter}" for letter in "ab"]
    jobs = [submit(Script(str(script)), name=name, cluster=M5, on=remote.service) for name in names]
    assert [find_running(name, remote.service, sole=True) for name in names] == jobs


def test_a_pattern_means_all_jobs_that_match_it_and_a_short_name_one_job_alone(remote, script):
    digits = [
        submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2)
    ]
    other = submit(Script(str(script)), name="other", cluster=M5, on=remote.service)
    assert set(find_all("digits-*", remote.service)) == set(digits)
    assert find_all("other", remote.service) == [other]
    with pytest.raises(InvalidRequest, match=r"2 jobs .*'digits': .*'digits-\*'"):
        find_all("digits", remote.service)
    with pytest.raises(JobNotFound, match=r"'none-\*'"):
        find_all("none-*", remote.service)


def test_a_session_goes_before_a_job_of_the_same_name_that_was_sent_behind_it(remote, script):
    session = submit(SessionWorkload(), name="digits", cluster=M5, on=remote.service)
    submit(Script(str(script)), name="digits", cluster=M5, on=remote.service)
    assert find_job("digits", remote.service) == session


def test_a_name_that_is_no_typo_of_another_has_no_hint(remote, script):
    sent = submit(Script(str(script)), name="job", cluster=M5, on=remote.service)
    with pytest.raises(JobNotFound) as caught:
        find_running("nojob", remote.service)
    assert sent.name not in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_an_unknown_name_is_refused_with_the_nearest_ones(remote, job):
    with pytest.raises(JobNotFound, match=rf"'{job.name}x'.* {job.name}\?"):
        find_job(f"{job.name}x", remote.service)

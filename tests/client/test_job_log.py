"""What a job says: its lines in words, its events, progress and metrics."""

import datetime
import io

import pytest

from raysm.client.submit import submit
from raysm.contract import events
from raysm.errors import InvalidRequest
from raysm.request import MetricDefinition, Script
from tests.support.client_jobs import M5, NOW_MS

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


def test_of_a_long_log_only_the_last_lines_are_printed(remote, job):
    lines = [(NOW_MS + at, f"line {at}") for at in range(5)]
    remote.write_log(job.name, "algo-1", [*lines, (NOW_MS + 9, events.line(EVENTS[-1]))])
    out = io.StringIO()
    job.logs(tail=2, to=out)
    assert out.getvalue().splitlines() == ["algo-1 | line 3", "algo-1 | line 4"]
    followed = job.lines(tail=1, follow=True)
    assert next(followed).text == "line 4"
    remote.write_log(job.name, "algo-1", [(NOW_MS + 10, "later")])
    assert next(followed).text == "later"
    with pytest.raises(InvalidRequest, match="tail must be at least 0, got -1"):
        job.lines(tail=-1)


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


def test_views_are_methods_of_a_job(remote, job):
    assert job.plot().svg.startswith("<svg")
    with pytest.raises(InvalidRequest, match="draws a card in a notebook, and this is not a notebook"):
        job.watch()
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(InvalidRequest, match="has ended"):
        job.dashboard()

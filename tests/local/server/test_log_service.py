"""CloudWatch Logs and metrics from the files of jobs: each line once, whichever way the pages go."""

import datetime
import json
import time

import pytest

from raysm.core.protocol.job_api import TRAINING
from raysm.local.server.log_service import LogService, MetricScanner, backwards, read
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError
from tests.support.sagemaker_server import TRAINING_LOGS


def test_backwards_yields_what_forwards_does_from_any_place(tmp_path):
    path = tmp_path / "stream"
    for lines in (0, 1, 7, 300):
        written = b"".join(b'[%d, "%s"]\n' % (at, b"x" * (at * 37 % 5000)) for at in range(lines))
        for torn in (b"", b'[9, "being wri'):
            path.write_bytes(
                written[: len(written) // 2]
                + b"7\n" * (lines > 1)
                + written[len(written) // 2 :]
                + torn
            )
            events = list(read(path))
            assert list(backwards(path)) == events[::-1]
            for _, behind, *_ in events[:: max(1, lines // 10)]:
                assert (
                    list(backwards(path, behind))
                    == [event for event in events if event[1] <= behind][::-1]
                )


GROUP = TRAINING.log_group


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path)


@pytest.fixture
def service(records):
    return LogService(records)


@pytest.fixture
def write(records):
    """A function that writes the streams of a job: by name the lines, each with its time."""

    def add(job, region="us-east-1", **streams):
        records.add(
            JobRecord(
                kind="training",
                name=job,
                arn=f"arn:{job}",
                region=region,
                request={},
                created_s=1.0,
                modified_s=1.0,
            )
        )
        folder = records.folder(TRAINING, job, region) / "streams"
        folder.mkdir(parents=True)
        for name, lines in streams.items():
            text = "".join(json.dumps(list(line)) + "\n" for line in lines)
            (folder / name.replace("_", "-")).write_text(text)

    return add


def names(answer):
    return [stream["logStreamName"] for stream in answer["logStreams"]]


def messages(answer):
    return [event["message"] for event in answer["events"]]


def test_streams_are_those_of_the_prefix_and_come_by_pages(service, write):
    write("a", algo_1=[(1, "x")], algo_2=[(2, "x")])
    write("ab", algo_1=[(3, "x")])

    def ask(**more):
        return service.answer("DescribeLogStreams", {"logGroupName": GROUP, **more})

    assert names(ask()) == ["a/algo-1", "a/algo-2", "ab/algo-1"]
    assert names(ask(logStreamNamePrefix="a/")) == ["a/algo-1", "a/algo-2"]
    assert names(ask(logStreamNamePrefix="a/algo-2")) == ["a/algo-2"]
    assert names(ask(descending=True)) == ["ab/algo-1", "a/algo-2", "a/algo-1"]
    first = ask(limit=2)
    second = ask(limit=2, nextToken=first["nextToken"])
    assert (names(first), names(second), "nextToken" in second) == (
        ["a/algo-1", "a/algo-2"],
        ["ab/algo-1"],
        False,
    )


def test_lines_come_forwards_page_by_page_until_the_token_stays(service, write):
    write("a", algo_1=[(at, f"line {at}") for at in range(5)])
    request = {
        "logGroupName": GROUP,
        "logStreamName": "a/algo-1",
        "startFromHead": True,
        "limit": 2,
    }
    pages, token = [], None
    while True:
        answer = service.answer(
            "GetLogEvents", {**request, **({"nextToken": token} if token else {})}
        )
        if answer["nextForwardToken"] == token:
            assert answer["events"] == []
            break
        pages.append(messages(answer))
        token = answer["nextForwardToken"]
    assert pages == [["line 0", "line 1"], ["line 2", "line 3"], ["line 4"]]


def test_without_a_direction_the_last_page_comes_first_and_within_it_the_oldest(service, write):
    write("a", algo_1=[(at, f"line {at}") for at in range(5)])
    request = {"logGroupName": GROUP, "logStreamName": "a/algo-1", "limit": 2}
    last = service.answer("GetLogEvents", request)
    before = service.answer("GetLogEvents", {**request, "nextToken": last["nextBackwardToken"]})
    assert (messages(last), messages(before)) == (["line 3", "line 4"], ["line 1", "line 2"])
    again = service.answer("GetLogEvents", {**request, "nextToken": before["nextForwardToken"]})
    assert messages(again) == ["line 3", "line 4"]


def test_a_filter_merges_streams_by_time_and_its_pages_lose_nothing(service, write):
    write(
        "a", algo_1=[(1, "ERROR one"), (4, "fine")], algo_2=[(2, "ERROR two"), (3, "ERROR three")]
    )
    request = {
        "logGroupName": GROUP,
        "logStreamNamePrefix": "a/",
        "filterPattern": "ERROR",
        "limit": 2,
    }
    first = service.answer("FilterLogEvents", request)
    second = service.answer("FilterLogEvents", {**request, "nextToken": first["nextToken"]})
    assert messages(first) + messages(second) == ["ERROR one", "ERROR two", "ERROR three"]
    assert [event["logStreamName"] for event in first["events"]] == ["a/algo-1", "a/algo-2"]
    assert "nextToken" not in second


@pytest.mark.parametrize(
    ("operation", "more", "code"),
    [
        ("GetLogEvents", {"logStreamName": "a/algo-9"}, "ResourceNotFoundException"),
        (
            "GetLogEvents",
            {"logStreamName": "a/algo-1", "nextToken": "x/1"},
            "InvalidParameterException",
        ),
        (
            "GetLogEvents",
            {"logStreamName": "a/algo-1", "nextToken": "f/x"},
            "InvalidParameterException",
        ),
        ("DescribeLogStreams", {"nextToken": "no base64"}, "InvalidParameterException"),
        ("FilterLogEvents", {"logStreamNames": ["a/algo-9"]}, "ResourceNotFoundException"),
        (
            "FilterLogEvents",
            {"logStreamNames": ["a/x"], "logStreamNamePrefix": "a"},
            "InvalidParameterException",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_with_cloudwatchs_code(
    service, write, operation, more, code
):
    write("a", algo_1=[(1, "x")])
    with pytest.raises(ApiError) as raised:
        service.answer(operation, {"logGroupName": GROUP, **more})
    assert raised.value.code == code


def test_jobs_of_one_name_in_two_regions_have_logs_of_their_own(service, write):
    write("same", algo_1=[(1, "near")])
    write("same", region="eu-west-1", algo_1=[(2, "far")])
    asked = {"logGroupName": GROUP, "logStreamName": "same/algo-1", "startFromHead": True}
    assert messages(service.answer("GetLogEvents", asked)) == ["near"]
    assert messages(service.answer("GetLogEvents", asked, "eu-west-1")) == ["far"]
    (stream,) = service.answer("DescribeLogStreams", {"logGroupName": GROUP}, "eu-west-1")[
        "logStreams"
    ]
    assert (stream["logStreamName"], stream["arn"].split(":")[3]) == ("same/algo-1", "eu-west-1")
    everything = service.answer("FilterLogEvents", {"logGroupName": GROUP}, "eu-west-1")
    assert messages(everything) == ["far"]


DEFINITIONS = {
    "algorithm": {
        "MetricDefinitions": [
            {"Name": "train:loss", "Regex": "loss=([0-9.e+-]+)"},
            {"Name": "epoch", "Regex": r"^epoch (\d+)"},
            {"Name": "never", "Regex": "nothing ([0-9]+)"},
            {"Name": "no-number", "Regex": "loss=(.*)$"},
        ]
    }
}


@pytest.fixture(scope="module")
def logged(server):
    """A job of two instances, and the logs client."""
    began_s = time.time()
    server.train("logged", "i=0; while [ $i -lt 3 ]; do echo line $i; i=$((i+1)); done", count=2)
    server.ended("logged")
    server.train("logged-2", "echo of another")
    server.ended("logged-2")
    return began_s, server.client("logs")


def streams_of(logs, job):
    found = logs.describe_log_streams(logGroupName=TRAINING_LOGS, logStreamNamePrefix=f"{job}/")
    return [stream["logStreamName"] for stream in found["logStreams"]]


def test_streams_are_named_by_job_host_and_second(logged):
    began_s, logs = logged
    names = streams_of(logs, "logged")
    assert [name.rpartition("-")[0] for name in names] == ["logged/algo-1", "logged/algo-2"]
    assert all(began_s - 1 <= int(name.rpartition("-")[2]) <= time.time() for name in names)


def test_our_groups_stand_among_the_users_own_which_are_motos(logged):
    _, logs = logged
    logs.create_log_group(logGroupName="/mine")
    names = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
    assert names == ["/aws/sagemaker/ProcessingJobs", TRAINING_LOGS, "/mine"]


def test_text_that_is_not_utf_8_and_empty_lines_pass(server):
    server.train("odd", r"printf 'gr\303\274n\n\n\377bad\nno newline'")
    server.ended("odd")
    assert [text for _, text in server.lines("odd")] == ["grün", " ", "\ufffdbad", "no newline"]


def test_the_last_value_of_each_metric_is_in_the_job_and_all_are_in_cloudwatch(server):
    server.train(
        "measured",
        "echo epoch 1 loss=0.5; echo epoch 2 loss=2.5e-1; echo the epoch 3",
        **DEFINITIONS,
    )
    job = server.ended("measured")
    final = {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]}
    assert final == {"train:loss": 0.25, "epoch": 2.0, "no-number": 0.25}
    now = datetime.datetime.now(datetime.UTC)
    found = server.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="train:loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": "measured"}],
        StartTime=now - datetime.timedelta(minutes=10),
        EndTime=now + datetime.timedelta(minutes=1),
        Period=3600,
        Statistics=["Sum", "SampleCount"],
    )
    assert sum(point["Sum"] for point in found["Datapoints"]) == 0.75
    assert sum(point["SampleCount"] for point in found["Datapoints"]) == 2


def test_a_loss_that_diverges_is_passed_over():
    record = JobRecord(
        kind="training",
        name="a-job",
        arn="arn",
        region="eu-west-1",
        request={},
        created_s=1.0,
        modified_s=1.0,
    )
    metrics = MetricScanner(None, record, [{"Name": "loss", "Regex": r"loss=(\S+)"}])
    for text in ("loss=2.0", "loss=nan", "loss=inf", "loss=-Infinity"):
        metrics.line(text)
    assert [metric["Value"] for metric in metrics.last()] == [2.0]

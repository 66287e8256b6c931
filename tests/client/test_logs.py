"""The log of one job, as its reader and its handle give it."""

import pytest

from raysm.client.logs.stream import LogReader
from raysm.client.service import Service
from raysm.client.submit import submit
from raysm.contract.job_api import TRAINING
from raysm.errors import ServiceError
from raysm.request import Script
from tests.support.client_jobs import M5, NOW_MS
from tests.support.sagemaker import aws, refusal


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


class Pages:
    """A log service with one stream, which has these pages."""

    def __init__(self, *pages):
        self.pages = pages

    def describe_log_streams(self, **call):
        return {"logStreams": [{"logStreamName": "a-job/algo-1-1"}]}

    def get_log_events(self, nextToken="0", **call):  # noqa: N803
        texts = self.pages[int(nextToken)] if int(nextToken) < len(self.pages) else []
        following = str(min(int(nextToken) + 1, len(self.pages)))
        events = [{"timestamp": NOW_MS, "message": f"{text}\r\n"} for text in texts]
        return {"events": events, "nextForwardToken": following}


def test_a_long_log_is_read_page_by_page_and_from_where_it_stopped():
    logs = Pages("ab", "cd", "e")
    reader = LogReader(Service(aws(), clients=lambda name: logs), TRAINING, "a-job")
    assert [line.text for line in reader.new_lines()] == list("abcde")
    assert list(reader.new_lines()) == []
    logs.pages += ("f",)
    assert [line.text for line in reader.new_lines()] == ["f"]


def test_the_log_of_a_processing_job_lies_in_its_own_group(remote, script):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, kind="processing")
    remote.write_log(job.name, "algo-1", [(NOW_MS, "x")], group="/aws/sagemaker/ProcessingJobs")
    assert [line.text for line in job.lines()] == ["x"]


def test_a_page_that_a_failure_cut_off_is_read_again_and_nothing_of_it_comes_twice(remote, job):
    for host, times in (("algo-1", (0, 2)), ("algo-2", (1, 3))):
        remote.write_log(job.name, host, [(NOW_MS + time_ms, str(time_ms)) for time_ms in times])
    remote.fail("get_log_events", refusal("ServiceUnavailable", "away"), after=2, times=1)
    reader, texts = LogReader(remote.service, TRAINING, job.name), []
    with pytest.raises(ServiceError, match="away"):
        texts.extend(line.text for line in reader.new_lines())
    texts.extend(line.text for line in reader.new_lines())
    assert sorted(texts) == sorted(set(texts))
    assert set(texts) <= {"0", "1", "2", "3"}


def calls(remote):
    return len([name for name, _ in remote.logs.calls if name == "get_log_events"])


def test_a_refusal_of_the_log_service_is_not_taken_for_an_empty_log(remote, job):
    remote.fail("describe_log_streams", refusal("AccessDeniedException", "no"))
    with pytest.raises(ServiceError, match="AccessDeniedException"):
        list(LogReader(remote.service, TRAINING, job.name).new_lines())

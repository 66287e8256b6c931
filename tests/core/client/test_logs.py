"""The log of a job and of its follow-ups, as their readers and handles give them."""

import dataclasses
import logging
import signal

import pytest

from raysm.core.client.job.chain import Chain
from raysm.core.client.job.handle import attach
from raysm.core.client.logs.stalls import find_stall
from raysm.core.client.logs.stream import JobStream, LogReader
from raysm.core.client.service import Service
from raysm.core.client.submit import submit
from raysm.core.protocol import events
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Limits
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.script.request import Script
from tests.support.client_jobs import COMPLETED, EXCEEDED, M5, NOW_MS, long_job
from tests.support.sagemaker import QUICK, aws, refusal


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


def test_what_a_silent_job_waits_for_is_logged_while_its_log_is_followed(remote, job):
    said = []

    class EndsTheJob(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
            remote.sagemaker.end(job.name, "Completed")

    polling = dataclasses.replace(QUICK, quiet_s=0.001)
    service = Service(job.service.target, clients=job.service.client, polling=polling)
    handler = EndsTheJob()
    logging.getLogger("raysm").addHandler(handler)
    try:
        attach(job.name, service).logs(follow=True)
    finally:
        logging.getLogger("raysm").removeHandler(handler)
    assert said[0] == "waiting: the service starts the instances"


def test_ctrl_c_while_a_log_is_followed_names_the_job_and_shows_no_internals(job):
    def interrupt(*args):
        signal.raise_signal(signal.SIGINT)

    service = Service(job.service.target, clients=job.service.client, polling=QUICK)
    service.connection.wait_for_change = interrupt
    with pytest.raises(KeyboardInterrupt, match=rf"{job.name} goes on.*stop\(\)") as raised:
        attach(job.name, service).logs(follow=True)
    # This line, and the one of raysm that raises.
    assert len(raised.traceback) == 2
    assert raised.value.__suppress_context__
    with pytest.raises(KeyboardInterrupt, match=f"{job.name} goes on"):
        for _ in attach(job.name, service).lines(follow=True):
            pass


def test_between_two_looks_it_is_waited_for_what_the_target_tells_of_the_job(remote, job):
    waits = []

    def wait_for_change(name, seen, pause_s, most_s):
        waits.append((name, seen, most_s <= 60))
        if seen:
            remote.sagemaker.end(job.name, "Completed")
        else:
            remote.write_log(job.name, "algo-1", [(NOW_MS, "told")])
        return seen + 5

    service = Service(remote.service.target, clients=remote.clients.__getitem__, polling=QUICK)
    service.connection.wait_for_change = wait_for_change
    lines = JobStream(Chain(job.name, service=service, api=TRAINING)).follow(timeout=60)
    assert [line.text for line in lines] == ["told"]
    assert waits[:2] == [(job.name, 0, True), (job.name, 5, True)]


def write_losses(remote, names):
    """Write a progress and a loss into the log of each job of a chain."""
    for index, name in enumerate(names):
        told = (
            events.Progress(phase="train", done=index + 1, total=3, unit="epochs"),
            events.Metric(name="loss", value=float(index), step=index, time_s=100.0 + index),
        )
        remote.write_log(
            name,
            "algo-1",
            [(NOW_MS + index * 10 + at, events.line(one)) for at, one in enumerate(told)],
        )


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
    job.wait(60)
    assert len(list(job.lines(follow=follow))) == 6
    told = [event.value for event in job.events(follow=follow) if isinstance(event, events.Metric)]
    assert told == losses_of(job) == [0.0, 1.0, 2.0]
    assert job.progress()["train"].done == 3


def test_late_lines_of_a_job_come_although_its_follow_up_runs(remote, script):
    service = Service(
        remote.service.target,
        clients=remote.clients.__getitem__,
        polling=dataclasses.replace(QUICK, late_s=600.0),
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
        with pytest.raises(InvalidRequest, match=f"'algo-9'.*{job.name}.*algo-1 to algo-2$"):
            ask(instance="algo-9")


STALLED = events.line(events.State(name="stalled", host="algo-1", detail="rank 1 sleeps"))
USAGE = events.line(events.Metric(name="cpu_percent", value=1.0, host="algo-1"))


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ([], "rank 1 sleeps"),
        (["raysm: rank 1 is in `sleep`", *[USAGE] * 300], "rank 1 sleeps"),
        (["step 7"], ""),
        ([events.line(events.Progress(phase="train", done=1, total=2))], ""),
        ([events.line(events.State(name="recovered", host="algo-1"))], ""),
    ],
)
def test_stall_of_a_job_is_found_unless_it_showed_life_since(remote, job, after, found):
    lines = ["begins", STALLED, *after]
    remote.write_log(job.name, "algo-1", [(NOW_MS + at, text) for at, text in enumerate(lines)])
    assert find_stall(job.chain) == found


def test_status_of_a_job_needs_no_permission_to_read_its_log(remote, job):
    remote.write_log(job.name, "algo-1", [(NOW_MS, STALLED)])
    remote.fail("describe_log_streams", refusal("AccessDeniedException", "no"))
    assert find_stall(job.chain) == ""


def test_job_that_has_ended_or_written_nothing_has_not_stalled(remote, job):
    assert find_stall(job.chain) == ""
    remote.write_log(job.name, "algo-1", [(NOW_MS, STALLED)])
    remote.sagemaker.end(job.name, "Failed")
    job.describe()
    assert find_stall(job.chain) == ""

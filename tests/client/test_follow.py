"""The cursor over what a job and its follow-ups say."""

import dataclasses
import logging
import signal
from functools import partial

import pytest

from raysm.client.job.chain import Chain
from raysm.client.job.handle import attach
from raysm.client.logs import pending
from raysm.client.logs.stream import JobStream
from raysm.client.service import Service
from raysm.client.submit import submit
from raysm.contract import events
from raysm.contract.job_api import TRAINING
from raysm.errors import InvalidRequest
from raysm.request import Limits, Script
from tests.support.client_jobs import COMPLETED, EXCEEDED, M5, NOW_MS, long_job
from tests.support.sagemaker import QUICK


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


def test_what_a_silent_job_waits_for_is_logged_while_its_log_is_followed(remote, job, monkeypatch):
    def warn(text, *arguments):
        said.append(text % arguments)
        remote.sagemaker.end(job.name, "Completed")

    said = []
    monkeypatch.setattr(pending, "reasons_told", partial(pending.reasons_told, every_s=0.001))
    monkeypatch.setattr(logging.getLogger("raysm"), "warning", warn)
    job.logs(follow=True)
    assert said[0] == "waiting: the service starts the instances"


def test_ctrl_c_while_a_log_is_followed_names_the_job_and_shows_no_internals(job):
    def interrupt(*args):
        signal.raise_signal(signal.SIGINT)

    service = Service(job.service.target, clients=job.service.client, polling=QUICK)
    service.connection.wait_for_change = interrupt
    with pytest.raises(KeyboardInterrupt, match=f"the job {job.name} goes on; .*stop") as raised:
        attach(job.name, service).logs(follow=True)
    # This line, and the one of raysm that raises.
    assert len(raised.traceback) == 2
    assert raised.value.__suppress_context__
    with pytest.raises(KeyboardInterrupt, match=f"the job {job.name} goes on"):
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
    job.wait(60)
    assert len(list(job.lines(follow=follow))) == 6
    told = [event.value for event in job.events(follow=follow) if isinstance(event, events.Metric)]
    assert told == losses_of(job) == [0.0, 1.0, 2.0]
    assert job.progress()["train"].done == 3


def test_late_lines_of_a_job_come_although_its_follow_up_runs(remote, script):
    service = Service(
        remote.service.target, clients=remote.clients.__getitem__, polling=dataclasses.replace(QUICK, late_s=600.0)
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
        with pytest.raises(InvalidRequest, match=rf"no instance 'algo-9': {job.name} has algo-1 to algo-2$"):
            ask(instance="algo-9")

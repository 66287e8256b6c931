"""The start of a session, and finding it by name."""

import types
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import raysm
from raysm.core.client.costs.prices import volume_usd_per_hour
from raysm.core.client.job.description import SecondaryStatus, Status
from raysm.core.protocol.events import State, line
from raysm.core.protocol.names import TASK_TAG, WORKLOAD_TAG
from raysm.core.request.job import NAME_PATTERN
from raysm.errors import InvalidRequest, JobFailed, JobNotFound
from raysm.features.session.client.start import (
    SessionLimits,
    await_server,
    check_name_is_free,
    describe_end,
    find_session,
    list_sessions,
    prepare_session,
)
from raysm.features.session.protocol import CLOSING
from tests.support.client_jobs import M5
from tests.support.stub_job import StubJob
from tests.support.waiting import until


def plan(fake, name="digits", limits=None, **options):
    return prepare_session(name, limits or SessionLimits(), fake, options)


def test_it_is_a_training_job_that_lets_its_user_in(fake):
    ready = plan(fake, cluster=raysm.Cluster(count=2))
    assert ready.request.workload.kind == "session"
    assert ready.plan.request["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert ready.plan.request["ResourceConfig"]["InstanceCount"] == 2
    assert "CheckpointConfig" not in ready.plan.request
    assert ready.task == "digits"


def test_its_limits_are_those_of_its_workload_and_its_job(fake):
    limits = SessionLimits(idle_timeout_s=60, max_cost=5, price_per_hour=2.0, max_runtime_s=3600)
    ready = plan(fake, limits=limits, cluster=raysm.Cluster(count=3))
    assert (ready.request.workload.idle_timeout_s, ready.request.workload.usd_per_hour) == (60, 6.0)
    # 5 USD pay for 50 minutes of three instances at 2 USD, of which a stop may take two.
    assert ready.plan.request["StoppingCondition"] == {"MaxRuntimeInSeconds": 2880}
    assert (ready.request.workload.max_cost, ready.request.workload.max_cost_s) == (5, 2880)
    with pytest.raises(InvalidRequest, match="max_runtime_s.* limits"):
        prepare_session("digits", SessionLimits(max_runtime_s=60), fake, {"limits": raysm.Limits()})


def test_what_nobody_is_billed_for_has_no_price_and_so_no_budget(fake):
    assert plan(fake).request.workload.usd_per_hour is None
    with pytest.raises(InvalidRequest, match="max_cost=5 .*price_per_hour"):
        plan(fake, limits=SessionLimits(max_cost=5))


def test_a_cap_of_a_projects_file_is_no_obstacle_where_nothing_is_billed(fake):
    ready = prepare_session("a", SessionLimits(), fake, {"limits": raysm.Limits(max_cost=5)})
    assert ready.request.workload.max_cost is None


def test_a_price_of_nothing_is_refused_by_the_name_of_its_option():
    with pytest.raises(InvalidRequest, match="price_per_hour.*got 0"):
        raysm.Session(price_per_hour=0)


def test_on_aws_the_price_is_that_of_the_instances_and_their_volumes(remote):
    limits = SessionLimits(max_cost=5, price_per_hour=0.5)
    ready = prepare_session("digits", limits, remote.service, {"cluster": M5})
    volumes = (
        volume_usd_per_hour(M5.instance_type, M5.volume_gb, remote.service.region) or 0.0
    ) * M5.count
    assert ready.request.workload.usd_per_hour == pytest.approx(0.5 * M5.count + volumes)


def test_a_processing_job_and_an_isolated_one_are_refused(fake):
    with pytest.raises(InvalidRequest, match=r"security\.remote_debug"):
        plan(fake, kind="processing")
    with pytest.raises(InvalidRequest, match="remote_debug.*isolation"):
        plan(fake, security=raysm.Security(isolation=True))


def test_the_logger_hears_of_a_start_in_one_line_and_of_its_events_if_it_takes_long(
    tmp_path, caplog
):
    job, heard = StubJob(tmp_path, 4567), []
    assert await_server(job, heard.append) == ("algo-1", 4567)
    assert [event.name for event in heard] == ["formed", "session"]
    await_server(job)
    assert caplog.messages == [f"waiting until the session accepts calls: {job.name}"]
    await_server(job, quiet_s=0.0)
    assert len(caplog.messages) == 4


def test_a_job_that_waits_for_its_instances_says_why_while_a_session_starts(tmp_path, caplog):
    class Waiting(StubJob):
        """Takes calls once somebody has been told why it does not."""

        def describe(self):
            return SimpleNamespace(
                status=Status.IN_PROGRESS,
                secondary=SecondaryStatus.PENDING,
                message="100% of the cores are taken",
            )

        def lines(self, *, follow=False):
            until(lambda: caplog.messages)
            yield from super().lines(follow=follow)

    await_server(Waiting(tmp_path, 4567), lambda event: None, quiet_s=0.001)
    assert caplog.messages == [
        "digits-20261122-120000-abcd1234 is Pending: 100% of the cores are taken"
    ]


def test_a_job_that_ends_before_it_serves_is_its_failure(tmp_path):
    job = StubJob(tmp_path, None)
    job.reason = "ValueError: no such image"
    with pytest.raises(JobFailed, match="no such image"):
        await_server(job)
    job.reason = None
    with pytest.raises(JobFailed, match="before it accepted calls"):
        await_server(job)


def test_the_end_is_told_in_the_sessions_own_words_else_in_those_of_the_service(tmp_path):
    job = StubJob(tmp_path, 1)
    assert describe_end(job, "digits") is None
    job.reason = "SIGKILL"
    assert (
        describe_end(job, "digits")
        == f"the session digits has ended: its job {job.name} is Failed: SIGKILL"
    )
    job.said.append(line(State(name=CLOSING, detail="idle for 5 min with no client attached")))
    assert (
        describe_end(job, "digits")
        == "the session digits has ended: idle for 5 min with no client attached"
    )


CREATED = datetime(2026, 11, 1, tzinfo=UTC)


class Listing:
    """The part of a service that tells which jobs there are."""

    def __init__(self, *jobs):
        self.jobs, self.asked = jobs, []
        self.target = types.SimpleNamespace(describe=lambda: "on this machine")

    def summaries(self, api, *, contains=None, limit):
        assert contains is None or NAME_PATTERN.fullmatch(contains), (
            "AWS answers with a ValidationException"
        )
        for name, status, kind in self.jobs:
            if contains is None or contains in name:
                yield {
                    "TrainingJobName": name,
                    "TrainingJobArn": f"arn:{name}",
                    "TrainingJobStatus": status,
                    "CreationTime": CREATED,
                    "kind": kind,
                }

    def tags(self, arn):
        self.asked.append(arn)
        name, _, kind = next(job for job in self.jobs if arn == f"arn:{job[0]}")
        return {WORKLOAD_TAG: kind, TASK_TAG: name.rsplit("-", 3)[0]}


JOBS = (
    ("digits-20261101-120000-abcd1234", "InProgress", "session"),
    ("letters-20261101-120000-abcd1234", "InProgress", "session"),
    ("digits-20261031-120000-abcd1234", "Completed", "session"),
    ("digits-20261101-130000-abcd1234", "InProgress", "script"),
)


def test_a_session_is_an_active_job_whose_tags_say_so():
    found = list(list_sessions(Listing(*JOBS)))
    assert [(each.name, each.job) for each in found] == [
        ("digits", "digits-20261101-120000-abcd1234"),
        ("letters", "letters-20261101-120000-abcd1234"),
    ]
    assert found[0].created == CREATED


def test_a_session_is_found_by_its_name_or_that_of_its_job_and_no_other_is_asked_for_its_tags():
    listing = Listing(*JOBS)
    assert [each.name for each in list_sessions(listing, "letters")] == ["letters"]
    assert listing.asked == ["arn:letters-20261101-120000-abcd1234"]
    assert [
        each.name for each in list_sessions(Listing(*JOBS), "digits-20261101-120000-abcd1234")
    ] == ["digits"]


@pytest.mark.parametrize("name", ["digit", "no name!"])
def test_a_session_that_does_not_run_is_named_with_those_that_do(name):
    with pytest.raises(JobNotFound, match=f"'{name}'.*: digits, letters"):
        find_session(Listing(*JOBS), name)
    with pytest.raises(JobNotFound, match=f"'{name}'.*: none"):
        find_session(Listing(), name)


def test_a_name_that_is_taken_is_refused_with_what_to_do():
    with pytest.raises(
        InvalidRequest, match="'digits' already.*digits-20261101.*attach.*%raysm connect digits"
    ):
        check_name_is_free(Listing(*JOBS), "digits")
    check_name_is_free(Listing(*JOBS), "others")

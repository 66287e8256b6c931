"""From what the user says to a session that takes calls."""

from types import SimpleNamespace

import pytest

import raysm
from raysm.client.costs.prices import known_prices, volume_usd_per_hour
from raysm.client.job.description import SecondaryStatus, Status
from raysm.client.service import Service
from raysm.client.session.starting import SessionLimits, place_of, prepared, usd_per_hour, why_ended
from raysm.contract.events import State, line
from raysm.contract.session import CLOSING
from raysm.errors import InvalidRequest, JobFailed
from raysm.testing import FakeSageMaker
from tests.support.client_jobs import M5
from tests.support.sessions import StubJob, until


@pytest.fixture
def fake(tmp_path):
    return FakeSageMaker(tmp_path / "home")


def plan(fake, name="digits", limits=None, **options):
    return prepared(name, limits or SessionLimits(), fake, options)


def test_it_is_a_training_job_that_lets_its_user_in(fake):
    ready = plan(fake, cluster=raysm.Cluster(count=2))
    assert ready.request.workload.kind == "session"
    assert ready.plan.request["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert ready.plan.request["ResourceConfig"]["InstanceCount"] == 2
    assert "CheckpointConfig" not in ready.plan.request
    assert ready.task == "digits"


def test_its_limits_are_those_of_its_workload_and_its_job(fake):
    limits = SessionLimits(idle_timeout_s=60, budget_usd=5, price_per_hour=2.0, max_runtime_s=3600)
    ready = plan(fake, limits=limits, cluster=raysm.Cluster(count=3))
    assert (ready.request.workload.idle_timeout_s, ready.request.workload.usd_per_hour) == (60, 6.0)
    assert ready.plan.request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}


def test_two_limits_of_its_time_contradict_each_other(fake):
    with pytest.raises(InvalidRequest, match="max_runtime_s stands in limits already"):
        prepared("digits", SessionLimits(max_runtime_s=60), fake, {"limits": raysm.Limits()})


def test_what_nobody_is_billed_for_has_no_price_and_so_no_budget(fake):
    assert plan(fake).request.workload.usd_per_hour is None
    with pytest.raises(InvalidRequest, match="needs a price.*price_per_hour"):
        plan(fake, limits=SessionLimits(budget_usd=5))


def test_on_aws_the_price_is_that_of_the_instances_and_their_volumes(remote):
    limits = SessionLimits(budget_usd=5, price_per_hour=0.5)
    ready = prepared("digits", limits, remote.service, {"cluster": M5})
    volumes = (volume_usd_per_hour(M5.instance_type, M5.volume_gb, remote.service.region) or 0.0) * M5.count
    assert ready.request.workload.usd_per_hour == pytest.approx(0.5 * M5.count + volumes)


def test_on_aws_a_type_of_the_table_has_the_tables_price(remote):
    (region, name), price = next(item for item in known_prices().prices.items())
    service = Service(raysm.AWS(role="arn:aws:iam::123456789012:role/r", region=region), clients=remote.service.client)
    assert usd_per_hour(raysm.Cluster(name, count=2), service, None) >= 2 * price.usd_per_hour


def test_of_a_choice_of_types_a_session_is_counted_by_the_dearest(remote):
    priced = sorted(known_prices().prices.items(), key=lambda item: item[1].usd_per_hour)
    region = priced[-1][0][0]
    (low, _), *_, (high, _) = [(name, price) for (where, name), price in priced if where == region]
    service = Service(raysm.AWS(role="arn:aws:iam::123456789012:role/r", region=region), clients=remote.service.client)
    dearest = usd_per_hour(raysm.Cluster(high), service, None)
    assert usd_per_hour(raysm.Cluster(low, alternatives=(high,)), service, None) == dearest
    assert usd_per_hour(raysm.Cluster(low), service, None) < dearest
    assert usd_per_hour(raysm.Cluster(low, alternatives=("ml.none.large",)), service, None) is None


def test_a_processing_job_and_an_isolated_one_are_refused(fake):
    with pytest.raises(InvalidRequest, match="no remote debugging"):
        plan(fake, kind="processing")
    with pytest.raises(InvalidRequest, match="remote_debug needs a network"):
        plan(fake, security=raysm.Security(isolation=True))


def test_who_waits_hears_what_the_job_says_and_where_the_server_is(tmp_path):
    heard = []
    assert place_of(StubJob(tmp_path, 4567), heard.append) == ("algo-1", 4567)
    assert [event.name for event in heard] == ["formed", "session"]


def test_a_start_that_takes_long_is_told_to_the_logger_and_a_quick_one_is_not(tmp_path, caplog):
    job = StubJob(tmp_path, 4567)
    place_of(job)
    assert caplog.messages == []
    place_of(job, quiet_s=0.0)
    assert len(caplog.messages) == 2


def test_a_job_that_waits_for_its_instances_says_why_while_a_session_starts(tmp_path, caplog):
    class Waiting(StubJob):
        """Takes calls once somebody has been told why it does not."""

        def describe(self):
            return SimpleNamespace(
                status=Status.IN_PROGRESS, secondary=SecondaryStatus.PENDING, message="100% of the cores are taken"
            )

        def lines(self, *, follow=False):
            until(lambda: caplog.messages)
            yield from super().lines(follow=follow)

    place_of(Waiting(tmp_path, 4567), lambda event: None, quiet_s=0.001)
    assert caplog.messages == ["digits-20261122-120000-abcd1234 is Pending: 100% of the cores are taken"]


def test_a_job_that_ends_before_it_serves_is_its_failure(tmp_path):
    job = StubJob(tmp_path, None)
    job.reason = "ValueError: no such image"
    with pytest.raises(JobFailed, match="no such image"):
        place_of(job)
    job.reason = None
    with pytest.raises(JobFailed, match="ended before it took calls"):
        place_of(job)


def test_the_end_is_told_in_the_sessions_own_words_else_in_those_of_the_service(tmp_path):
    job = StubJob(tmp_path, 1)
    assert why_ended(job, "digits") is None
    job.reason = "SIGKILL"
    assert why_ended(job, "digits") == f"the session digits has ended: its job {job.name} is Failed: SIGKILL"
    job.said.append(line(State(name=CLOSING, detail="idle for 5 min with no client attached")))
    assert why_ended(job, "digits") == "the session digits has ended: idle for 5 min with no client attached"

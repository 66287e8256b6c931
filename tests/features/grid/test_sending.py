"""Create and its answers: the same name is sent again until the service has settled it."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from raysm.core.client.job.description import Status
from raysm.errors import ServiceError
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.limiter import Rate
from raysm.features.grid.region import Region
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.sending import SENDS
from tests.support.grid_regions import preparing
from tests.support.grid_world import LOST, THROTTLED, Behaviour
from tests.support.grids import FAST, Bench, Killed
from tests.support.sagemaker import refusal

SENT_ATTEMPT = Attempt(
    row_key="a",
    number=1,
    name="g-abcdef-01234567-a1",
    region="us-east-1",
    instance_type="ml.m5.large",
    count=1,
)


@pytest.fixture
def region(remote, tmp_path):
    return Region(remote.service, preparing(remote.service, tmp_path))


def payload_of(remote):
    listed = remote.s3.list_objects_v2(Bucket=remote.service.bucket.name).get("Contents", ())
    return [item["Key"] for item in listed if "/payloads/" in item["Key"]]


def test_a_call_that_is_repeated_after_a_lost_answer_is_the_same_job(remote, region):
    remote.fail("create_training_job", refusal("InternalFailure", "who knows"), done=True)
    region.create(Row(key="a"), SENT_ATTEMPT)
    region.create(Row(key="a"), SENT_ATTEMPT)
    assert len(remote.sagemaker.jobs) == 1


def test_where_the_answer_is_lost_the_payload_stays_for_a_call_that_lands_late(remote, region):
    remote.fail("create_training_job", refusal("InternalFailure", "who knows"))
    with pytest.raises(ServiceError):
        region.create(Row(key="a"), SENT_ATTEMPT)
    assert payload_of(remote)


def test_a_definite_refusal_leaves_no_payload(remote, region):
    remote.fail("create_training_job", refusal("ResourceLimitExceeded", "0 instances"))
    with pytest.raises(ServiceError):
        region.create(Row(key="a"), SENT_ATTEMPT)
    assert not payload_of(remote)


def test_a_job_is_described_and_the_payload_of_one_that_has_ended_is_removed(remote, region):
    region.create(Row(key="a"), SENT_ATTEMPT)
    assert region.describe(SENT_ATTEMPT.name).status is Status.IN_PROGRESS
    assert payload_of(remote)
    remote.sagemaker.end(SENT_ATTEMPT.name, "Completed")
    assert region.describe(SENT_ATTEMPT.name).status is Status.COMPLETED
    assert not payload_of(remote)


def test_the_rates_of_many_jobs_are_one_call(remote, region):
    now = datetime.now(UTC)
    for name, value in (("job-a", 750.0), ("job-b", 250.0)):
        remote.service.client("cloudwatch").put_metric_data(
            Namespace="/aws/sagemaker/TrainingJobs",
            MetricData=[
                {
                    "MetricName": "images_per_s",
                    "Value": value,
                    "Timestamp": now,
                    "Dimensions": [{"Name": "TrainingJobName", "Value": name}],
                }
            ],
        )
    assert region.rates(["job-a", "job-b", "job-c"], "images_per_s") == {
        "job-a": 750.0,
        "job-b": 250.0,
    }
    assert region.rates(["job-a"], "loss") == {}


def refusing_bench(folder, refusal):
    one = Bench(folder, rows=1, regions={"us-east-1": Behaviour(refusal=refusal)})
    one.step()
    return one


def test_the_same_name_is_sent_again_the_later_the_oftener(tmp_path):
    one = refusing_bench(tmp_path, LOST)
    one.regions["us-east-1"].behaviour.silent = ()
    pauses = []
    while one.clock.now < 1_800_000_000 + 600:
        one.step()
        (attempt,) = one.store.attempts.open()
        pauses.append(attempt.calls)
    assert {each.name for each in one.store.attempts.all()} == {attempt.name}
    assert 5 < pauses[-1] < 15


def test_a_refusal_that_follows_a_lost_answer_is_watched(tmp_path):
    one = refusing_bench(tmp_path, LOST)
    one.regions["us-east-1"].behaviour.refusal = ServiceError("no", code="ValidationException")
    while one.store.attempts.open():
        one.step()
    (attempt,) = one.store.attempts.all()
    assert attempt.watch_s == attempt.ended_s + 900


def test_a_refusal_that_follows_a_throttled_call_after_a_lost_answer_is_watched(tmp_path):
    one = refusing_bench(tmp_path, LOST)
    behaviour = one.regions["us-east-1"].behaviour
    behaviour.refusal = THROTTLED
    one.run_until(lambda: "Rate exceeded" in one.store.attempts.all()[0].reason)
    behaviour.refusal = ServiceError("no", code="ValidationException")
    one.run_until(lambda: not one.store.attempts.open())
    (attempt,) = one.store.attempts.all()
    assert attempt.watch_s == attempt.ended_s + 900


def test_of_many_calls_a_crash_has_no_more_made_again_than_are_kept_together(tmp_path):
    sent = []
    one = Bench(
        tmp_path,
        rows=3 * SENDS,
        regions={"us-east-1": Behaviour()},
        rules=Rules(brake=0, parallel=1000),
    )

    def ends_at_the_second_part(point):
        sent.append(point)
        if sent.count("after create") == SENDS + 5:
            raise Killed(point)

    one.limiter.take("us-east-1", "create", one.clock.now)
    one.clock.now += 60
    one.kill = ends_at_the_second_part
    with pytest.raises(Killed):
        one.step()
    assert (
        Counter(attempt.state for attempt in one.store.attempts.all())[AttemptState.SENT] == SENDS
    )
    one.kill = lambda point: None
    one.run()
    one.judge()
    assert len(one.regions["us-east-1"].lives) == 3 * SENDS


def test_once_an_answer_is_lost_the_others_of_a_step_are_not_waited_for(tmp_path):
    # In a step that made them all a region that is silent would hold up the others for as many
    # timeouts.
    silent = Behaviour(refusal=LOST)
    one = Bench(
        tmp_path, rows=3 * SENDS, regions={"us-east-1": silent}, rules=Rules(brake=0, parallel=1000)
    )
    one.limiter.take("us-east-1", "create", one.clock.now)
    one.clock.now += 60
    one.step()
    assert one.regions["us-east-1"].calls["create"] == 1
    (attempt,) = one.store.attempts.all()
    assert attempt.state is AttemptState.MAYBE
    # The rows of the others wait again, and another region could take them.
    assert one.states() == {"placed": 1, "waiting": 3 * SENDS - 1}
    silent.refusal = None
    one.run()
    assert one.states() == {"done": 3 * SENDS}
    one.judge()


def losing_stop(region):
    """Let the region's first Stop have no effect."""
    stop = region.stop
    lost = []

    def stop_later(name):
        if lost:
            stop(name)
        lost.append(name)

    region.stop = stop_later


def test_a_stop_that_has_no_effect_is_repeated(tmp_path):
    one = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(run_s=50_000)})
    one.step()
    losing_stop(one.regions["us-east-1"])
    one.store.change_state("stopping", one.clock.now, fenced=False)
    one.run(most_s=600)
    assert one.states() == {"stopped": 1}


def test_a_region_that_does_not_answer_is_asked_for_one_stop_in_each_poll(tmp_path):
    region = {"us-east-1": Behaviour(run_s=100_000)}
    one = Bench(tmp_path, rows=20, regions=region, rules=Rules(brake=0, parallel=20))
    one.run_until(lambda: len(one.store.attempts.open()) == 20)
    began_s = one.clock.now
    one.regions["us-east-1"].behaviour.silent = ((began_s, began_s + 600),)
    one.store.change_state("stopping", began_s, fenced=False)
    one.points.clear()
    one.run_until(lambda: one.clock.now > began_s + 500)
    assert 10 <= one.points.count("before stop") <= 60


def test_a_stop_of_an_orphaned_job_that_has_no_effect_is_repeated(tmp_path):
    one = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour()})
    one.step()
    region = one.regions["us-east-1"]
    region.behaviour.run_s = 50_000
    region.create(
        Row(key="gone"), replace(SENT_ATTEMPT, name=one.store.grid().job_name(Row(key="gone"), 1))
    )
    losing_stop(region)
    one.run(most_s=3600)
    assert one.states() == {"done": 1}


def test_a_region_that_is_silent_when_an_orphaned_job_is_stopped_again_ends_no_grid(tmp_path):
    one = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour()})
    one.step()
    region = one.regions["us-east-1"]
    now = one.clock.now
    region.create(
        Row(key="gone"), replace(SENT_ATTEMPT, name=one.store.grid().job_name(Row(key="gone"), 1))
    )
    losing_stop(region)
    region.behaviour.silent = ((now + 60, now + 400),)
    one.run()
    assert one.states() == {"done": 1}


def test_a_row_that_is_stopped_before_its_create_is_answered_is_not_sent_again(tmp_path):
    one = refusing_bench(tmp_path, LOST)
    region = one.regions["us-east-1"]
    one.store.change_state("stopping", one.clock.now, fenced=False)
    region.behaviour.refusal = None
    one.run()
    assert one.states() == {"stopped": 1}
    assert region.lives == {}


def test_a_row_that_is_stopped_and_retried_is_not_sent_while_its_last_create_may_be_carried_out(
    tmp_path,
):
    one = refusing_bench(tmp_path, LOST)
    region = one.regions["us-east-1"]
    one.run_until(lambda: one.clock.now > 1_800_000_000 + 600)
    # The answer to one more call is lost, and the service makes the job 100 s later.
    region.behaviour.refusal = None
    region.behaviour.late = 1.0
    region.behaviour.late_s = 100
    made = region.calls["create"]
    one.run_until(lambda: region.calls["create"] > made)
    region.behaviour.late = 0
    one.store.change_state("stopping", one.clock.now, fenced=False)
    while one.states() != {"stopped": 1}:
        one.step()
    one.store.requeue(["stopped"], one.clock.now)
    one.run()
    one.judge()
    assert one.states() == {"done": 1}


def test_intents_of_a_killed_controller_are_sent_no_faster_than_its_bucket_allows(tmp_path):
    rates = FAST | {"create": Rate(per_s=1.0, burst=20)}
    one = Bench(tmp_path, rows=20, regions={"us-east-1": Behaviour()}, rates=rates)
    one.limiter.take("us-east-1", "create", one.clock.now)
    one.clock.now += 60

    def ends_before_create(point):
        if point == "before create":
            raise Killed(point)

    one.kill = ends_before_create
    with pytest.raises(Killed):
        one.step()
    assert len(one.store.attempts.unanswered()) == 20
    one.kill = lambda point: None
    # Another controller, before the bucket is full again.
    one.controller = None
    one.store.database.close()
    one.open()
    one.clock.now += 31
    one.limiter.take("us-east-1", "create", one.clock.now, 15)
    one.step()
    assert one.regions["us-east-1"].calls["create"] <= 5
    one.run()
    assert one.states() == {"done": 20}

"""The life of a job that nobody runs: by the scenario, by its market, by chance that repeats, under a clock."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from raysm.core.protocol.job_api import TRAINING
from raysm.features.grid.endings import parse_quota
from raysm.local.scenario import Capacity, Market, Scenario, Simulated
from raysm.local.server.market import Stock
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.services import Services
from raysm.local.server.simulated import SimulatedLife
from raysm.local.server.validation import ApiError
from tests.support.api_requests import training_parameters
from tests.support.hand_clock import HandClock
from tests.support.waiting import until

HOUR_S = 3600.0
SOON_S = 60.0
LIMITS = {"StoppingCondition": {"MaxRuntimeInSeconds": 86_400}}


class World:
    """One region, its records and its clock."""

    def __init__(self, folder, **tables):
        self.clock = HandClock()
        self.scenario = Scenario(seed=tables.pop("seed", 1), **tables)
        self.records = Records(folder, self.clock)
        self.services = Services(
            records=self.records,
            moto=None,
            objects=None,
            cores=None,
            stock=Stock(self.scenario, self.records),
            timers=self.clock,
            scenario=self.scenario,
        )

    def start(self, name="a-job", **fields):
        record = JobRecord(
            kind="training",
            name=name,
            arn=f"arn:{name}",
            region="us-east-1",
            request=training_parameters(TrainingJobName=name, **LIMITS | fields),
            instance_kind="simulated",
            created_s=self.clock.now(),
            modified_s=self.clock.now(),
        )
        self.records.add(record)
        life = SimulatedLife(self.services, record)
        life.start()
        return life

    def record(self, name="a-job"):
        return self.records.get(TRAINING, name)

    def phases(self, name="a-job"):
        return [item.status for item in self.record(name).transitions]


@pytest.fixture
def world(tmp_path):
    def made(**tables):
        return World(tmp_path, **tables)

    return made


def test_it_starts_runs_and_ends_by_the_scenario(world):
    here = world(capacity=Capacity(start_delay_s=240.0), simulated=Simulated(run_s=600.0))
    life = here.start()
    assert isinstance(life, SimulatedLife)
    here.clock.pass_s(239)
    assert (here.record().status, here.record().started_s) == ("InProgress", None)
    here.clock.pass_s(2)
    assert (here.record().secondary, life.running) == ("Training", True)
    here.clock.pass_s(600)
    ended = here.record()
    assert (ended.status, ended.training_s) == ("Completed", pytest.approx(600))
    assert ended.ended_s - ended.started_s == pytest.approx(600)
    assert ended.artifacts.endswith("/a-job/output/model.tar.gz")
    assert not life.running
    assert life.await_end(0)


def test_a_share_of_the_jobs_fails_and_the_same_ones_each_time(world, tmp_path):
    outcomes = []
    for folder in ("first", "second"):
        here = World(tmp_path / folder, simulated=Simulated(run_s=10, failed=0.3))
        for number in range(20):
            here.start(f"job-{number}")
        here.clock.pass_s(60)
        outcomes.append([here.record(f"job-{number}").status for number in range(20)])
    assert outcomes[0] == outcomes[1]
    assert 2 <= outcomes[0].count("Failed") <= 12


def test_what_the_region_has_not_fails_as_on_aws_and_a_job_that_ends_makes_room(world):
    here = world(capacity=Capacity(instances={"ml.m5.large": 1}), simulated=Simulated(run_s=600))
    here.start("first")
    here.start("second")
    here.clock.pass_s(31)
    assert here.record("second").failure_reason.startswith(
        "CapacityError: Unable to provision requested ML compute"
    )
    assert here.record("second").training_s == 0
    here.clock.pass_s(600)
    here.start("third")
    here.clock.pass_s(601)
    assert here.record("third").status == "Completed"


def test_a_job_on_spot_capacity_is_interrupted_and_goes_on_with_what_it_has_done(world):
    here = world(
        capacity=Capacity(start_delay_s=60, interruptions_per_hour=4.0),
        simulated=Simulated(run_s=2 * HOUR_S),
    )
    here.start(
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 172800},
    )
    here.clock.pass_s(24 * HOUR_S)
    ended = here.record()
    interruptions = here.phases().count("Interrupted")
    assert (ended.status, interruptions > 0) == ("Completed", True)
    assert ended.attempts == interruptions + 1
    assert ended.training_s == pytest.approx(2 * HOUR_S)
    assert ended.ended_s - ended.created_s == pytest.approx(2 * HOUR_S + 60 * ended.attempts)


def test_a_job_ends_at_its_limit_of_time_and_is_billed_up_to_it(world):
    here = world(simulated=Simulated(run_s=HOUR_S))
    here.start(StoppingCondition={"MaxRuntimeInSeconds": 100})
    here.clock.pass_s(200)
    ended = here.record()
    assert (ended.status, ended.secondary) == ("Stopped", "MaxRuntimeExceeded")
    assert 100 <= ended.training_s <= 110


def test_a_job_is_stopped_when_it_is_asked_to_and_not_again_once_it_has_ended(world):
    here = world(capacity=Capacity(instances={"ml.m5.large": 1}))
    life = here.start()
    here.clock.pass_s(10)
    life.stop()
    assert here.record().status == "Stopping"
    here.clock.pass_s(10)
    assert here.record().status == "Stopped"
    with pytest.raises(ApiError, match="is in status Stopped"):
        life.stop()
    here.start("next")
    here.clock.pass_s(601)
    assert here.record("next").status == "Completed"


def test_a_job_that_is_being_stopped_enters_no_status_but_uploading(world):
    here = world(simulated=Simulated(run_s=600))
    life = here.start()
    life.stop()
    life.enter_training()
    assert (here.record().secondary, here.record().started_s) == ("Stopping", here.clock.now())
    life.enter("Uploading", "")
    assert here.record().secondary == "Uploading"


def test_who_waits_for_a_change_of_a_job_is_woken_by_it_and_hears_of_its_end(world):
    life = world(simulated=Simulated(run_s=600)).start()
    seen = life.await_change(-1, 0.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(life.await_change, seen, 2 * SOON_S)
        until(waiting.running, SOON_S)
        life.enter_training()
        assert waiting.result(SOON_S) not in (seen, None)
        life.shut_down()
        assert pool.submit(life.await_change, seen, 2 * SOON_S).result(SOON_S) is None


def test_a_count_of_changes_that_an_earlier_server_gave_is_answered_at_once(world):
    life = world(simulated=Simulated(run_s=600)).start()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(life.await_change, 99, 2 * SOON_S).result(SOON_S) is not None


def test_an_interrupted_job_keeps_the_start_of_its_first_attempt(world):
    here = world(capacity=Capacity(start_delay_s=60), simulated=Simulated(run_s=600))
    life = here.start(EnableManagedSpotTraining=True)
    here.clock.pass_s(61)
    life.interrupt()
    here.clock.pass_s(661)
    ended = here.record()
    assert (ended.status, ended.attempts) == ("Completed", 2)
    assert ended.started_s - ended.created_s == pytest.approx(60)


TYPE = "ml.p4d.24xlarge"
CHANCE = Random(1)


def request(count=1, instance_type=TYPE, **more):
    return {"ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count}, **more}


def record(name, region="us-east-1", **fields):
    asked = request(**fields)
    return JobRecord(
        kind="training",
        name=name,
        arn=name,
        region=region,
        request=asked,
        created_s=1.0,
        modified_s=1.0,
    )


def stock(folder, **tables):
    clock = HandClock()
    records = Records(folder, clock)
    return Stock(Scenario(**tables), records), records


def test_a_job_gets_all_of_its_instances_or_none(tmp_path):
    here, _ = stock(tmp_path, capacity=Capacity(instances={TYPE: 4}))
    assert here.take(record("a", count=3), CHANCE)
    assert not here.take(record("b", count=2), CHANCE)
    assert here.take(record("c", count=1), CHANCE)
    here.give_back(record("a", count=3))
    assert here.take(record("b", count=2), CHANCE)


def test_a_choice_is_refused_where_no_type_of_it_fits_its_quota(tmp_path):
    here, _ = stock(tmp_path, market=Market(quotas={TYPE: 1, "ml.g5.xlarge": 4}))
    types = [{"InstanceType": TYPE}, {"InstanceType": "ml.g5.xlarge"}]
    asked = {"ResourceConfig": {"InstancePreferences": types, "InstanceCount": 4}}
    here.check_quota(TRAINING, asked, "us-east-1")
    asked["ResourceConfig"]["InstanceCount"] = 5
    with pytest.raises(ApiError, match=f"'{TYPE} for training job usage' is 1 Instances"):
        here.check_quota(TRAINING, asked, "us-east-1")


def test_a_quota_refuses_what_goes_beyond_it_in_words_that_a_grid_learns_from(tmp_path):
    here, records = stock(tmp_path, market=Market(quotas={TYPE: 4}))
    records.add(record("a", count=3))
    here.check_quota(TRAINING, request(1), "us-east-1")
    with pytest.raises(ApiError) as refused:
        here.check_quota(TRAINING, request(2), "us-east-1")
    assert refused.value.code == "ResourceLimitExceeded"
    assert (
        f"'{TYPE} for training job usage' is 4 Instances, with current utilization of 3"
        in refused.value.message
    )
    assert parse_quota(refused.value.message) == (4, 3)


def test_spot_has_a_quota_of_its_own(tmp_path):
    here, records = stock(tmp_path, market=Market(quotas={TYPE: 1}, spot_quotas={TYPE: 2}))
    records.add(record("a"))
    here.check_quota(TRAINING, request(2, EnableManagedSpotTraining=True), "us-east-1")
    with pytest.raises(ApiError, match="for spot training job usage' is 2"):
        here.check_quota(TRAINING, request(3, EnableManagedSpotTraining=True), "us-east-1")

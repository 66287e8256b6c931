"""What a region has, and what the account may have of it: two limits, with AWS's words."""

from dataclasses import replace

import pytest

from raysm.contract.job_api import PROCESSING, TRAINING
from raysm.grid.classify import LearnedQuota, quota_in
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.stock import Stock, asked_instances, quota_name
from tests.support.hand_clock import HandClock

TYPE = "ml.p4d.24xlarge"


def request(count=1, instance_type=TYPE, **more):
    return {"ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count}, **more}


def record(name, region="us-east-1", **fields):
    asked = request(**fields)
    return JobRecord(kind="training", name=name, arn=name, region=region, request=asked, created_s=1.0, modified_s=1.0)


def stock(folder, **tables):
    clock = HandClock()
    records = Records(folder, clock)
    return Stock(Scenario(**tables), records, clock), records, clock


def test_instances_are_counted_by_type_in_either_api_and_in_groups():
    groups = [
        {"InstanceGroupName": "a", "InstanceType": TYPE, "InstanceCount": 2},
        {"InstanceGroupName": "b", "InstanceType": "ml.m5.large", "InstanceCount": 3},
    ]
    assert asked_instances(TRAINING, request(4)) == {TYPE: 4}
    assert asked_instances(TRAINING, {"ResourceConfig": {"InstanceGroups": groups}}) == {TYPE: 2, "ml.m5.large": 3}
    cluster = {"ClusterConfig": {"InstanceType": TYPE, "InstanceCount": 5}}
    assert asked_instances(PROCESSING, {"ProcessingResources": cluster}) == {TYPE: 5}


def test_a_job_gets_all_of_its_instances_or_none(tmp_path):
    here, _, _ = stock(tmp_path, capacity=Capacity(instances={TYPE: 4}))
    assert here.take(record("a", count=3))
    assert not here.take(record("b", count=2))
    assert here.take(record("c", count=1))
    here.give_back(record("a", count=3))
    assert here.take(record("b", count=2))


def test_each_region_has_its_own_and_types_that_are_not_named_have_no_end(tmp_path):
    here, _, _ = stock(tmp_path, regions={"eu-west-1": Scenario(capacity=Capacity(instances={TYPE: 1}))})
    assert here.take(record("a", "eu-west-1"))
    assert not here.take(record("b", "eu-west-1"))
    assert here.take(record("b", count=1000))
    assert here.take(record("c", "eu-west-1", instance_type="ml.m5.large", count=1000))


def choosing(records, name, *types, count=2):
    resources = {"InstancePreferences": [{"InstanceType": each} for each in types], "InstanceCount": count}
    made = replace(record(name), request={"ResourceConfig": resources})
    records.add(made)
    return made


def test_of_a_choice_a_job_gets_the_first_type_that_there_is_and_gives_that_back(tmp_path):
    here, records, _ = stock(tmp_path, capacity=Capacity(instances={TYPE: 2, "ml.g5.xlarge": 2}))
    first, second, third = (choosing(records, name, TYPE, "ml.g5.xlarge") for name in "abc")
    assert [here.take(each) for each in (first, second, third)] == [True, True, False]
    told = [records.get(TRAINING, name).request["ResourceConfig"].get("SelectedInstanceType") for name in "abc"]
    assert told == [TYPE, "ml.g5.xlarge", None]
    # By what it has, and not by what it wanted most.
    here.give_back(second)
    assert not here.take(record("d", count=1))
    assert here.take(third)


def test_a_choice_is_refused_where_no_type_of_it_fits_its_quota(tmp_path):
    here, _, _ = stock(tmp_path, market=Market(quotas={TYPE: 1, "ml.g5.xlarge": 4}))
    types = [{"InstanceType": TYPE}, {"InstanceType": "ml.g5.xlarge"}]
    asked = {"ResourceConfig": {"InstancePreferences": types, "InstanceCount": 4}}
    here.check_quota(TRAINING, asked, "us-east-1")
    asked["ResourceConfig"]["InstanceCount"] = 5
    with pytest.raises(ApiError, match=f"'{TYPE} for training job usage' is 1 Instances"):
        here.check_quota(TRAINING, asked, "us-east-1")


def test_by_a_seed_each_region_takes_instances_back_at_the_same_moments_whatever_the_others_do(tmp_path):
    def drawn(folder, *before):
        here, _, _ = stock(folder, seed=7)
        for region in before:
            here.interruptions(region).random()
        return [here.interruptions("eu-west-1").random() for _ in range(3)]

    assert drawn(tmp_path / "a") == drawn(tmp_path / "b", "us-east-1", "us-east-1")
    assert len(set(drawn(tmp_path / "a"))) == 3


def test_for_a_time_there_may_be_nothing_at_all(tmp_path):
    here, _, clock = stock(tmp_path, capacity=Capacity(gone=((10.0, 20.0),)))
    assert here.take(record("a"))
    clock.pass_s(15)
    assert not here.take(record("b"))
    clock.pass_s(5)
    assert here.take(record("b"))


def test_a_quota_refuses_what_goes_beyond_it_in_words_that_a_grid_learns_from(tmp_path):
    here, records, _ = stock(tmp_path, market=Market(quotas={TYPE: 4}))
    records.add(record("a", count=3))
    here.check_quota(TRAINING, request(1), "us-east-1")
    with pytest.raises(ApiError) as refused:
        here.check_quota(TRAINING, request(2), "us-east-1")
    assert refused.value.code == "ResourceLimitExceeded"
    assert f"'{TYPE} for training job usage' is 4 Instances, with current utilization of 3" in refused.value.message
    assert quota_in(refused.value.message) == LearnedQuota(limit=4, used=3, wanted=2)


def test_a_job_that_has_ended_counts_no_more(tmp_path):
    here, records, _ = stock(tmp_path, market=Market(quotas={TYPE: 1}))
    records.add(record("a"))
    records.update(TRAINING, "a", status="Completed")
    here.check_quota(TRAINING, request(1), "us-east-1")


def test_spot_has_a_quota_of_its_own(tmp_path):
    here, records, _ = stock(tmp_path, market=Market(quotas={TYPE: 1}, spot_quotas={TYPE: 2}))
    records.add(record("a"))
    here.check_quota(TRAINING, request(2, EnableManagedSpotTraining=True), "us-east-1")
    with pytest.raises(ApiError, match="for spot training job usage' is 2"):
        here.check_quota(TRAINING, request(3, EnableManagedSpotTraining=True), "us-east-1")


def test_without_a_limit_nothing_is_refused(tmp_path):
    here, _, _ = stock(tmp_path)
    here.check_quota(TRAINING, request(10_000), "us-east-1")


def test_a_quota_is_named_as_service_quotas_names_it():
    assert quota_name(TYPE, TRAINING, True) == f"{TYPE} for spot training job usage"
    assert quota_name(TYPE, PROCESSING, False) == f"{TYPE} for processing job usage"


def test_instances_are_taken_back_at_a_line_once_for_each_of_the_words_of_its_region(tmp_path):
    words = ("epoch 3", "epoch 5")
    here, _, _ = stock(tmp_path, regions={"eu-west-1": Scenario(capacity=Capacity(interrupted_at=words))})
    assert not here.interrupts("us-east-1", "epoch 3 of 9")
    lines = ["epoch 1 of 9", "epoch 3 of 9", "epoch 3 of 9", "epoch 5 of 9", "epoch 5 of 9"]
    assert [here.interrupts("eu-west-1", line) for line in lines] == [False, True, False, True, False]


def test_a_share_of_the_time_on_spot_capacity_alone_is_not_billed(tmp_path):
    here, _, _ = stock(tmp_path, market=Market(spot_saving=0.6))
    asked = request(EnableManagedSpotTraining=True)
    assert (here.spot_saving(asked, "us-east-1"), here.spot_saving(request(), "us-east-1")) == (0.6, 0.0)

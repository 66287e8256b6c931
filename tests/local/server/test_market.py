"""Prices, quotas and instances of the regions of a scenario, as raysm's own readers of AWS's answers read them."""

from random import Random

import pytest

from raysm.contract.job_api import TRAINING
from raysm.grid.endings import parse_quota
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.local.server.market import Stock
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError
from tests.support.hand_clock import HandClock

TYPE = "ml.p4d.24xlarge"
CHANCE = Random(1)


def request(count=1, instance_type=TYPE, **more):
    return {"ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count}, **more}


def record(name, region="us-east-1", **fields):
    asked = request(**fields)
    return JobRecord(kind="training", name=name, arn=name, region=region, request=asked, created_s=1.0, modified_s=1.0)


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
    assert f"'{TYPE} for training job usage' is 4 Instances, with current utilization of 3" in refused.value.message
    assert parse_quota(refused.value.message) == (4, 3)


def test_spot_has_a_quota_of_its_own(tmp_path):
    here, records = stock(tmp_path, market=Market(quotas={TYPE: 1}, spot_quotas={TYPE: 2}))
    records.add(record("a"))
    here.check_quota(TRAINING, request(2, EnableManagedSpotTraining=True), "us-east-1")
    with pytest.raises(ApiError, match="for spot training job usage' is 2"):
        here.check_quota(TRAINING, request(3, EnableManagedSpotTraining=True), "us-east-1")

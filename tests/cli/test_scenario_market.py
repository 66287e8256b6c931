"""What the doctor says of a scenario's market: prices, quotas and capacity by region, and what a job lacks there."""

import pytest

from raysm.cli.scenario_market import look_at_market
from raysm.client.doctor.case import Intent, State
from raysm.contract.names import LOCAL_REGION
from raysm.local.scenario import parse
from raysm.request import Cluster, Limits

SCENARIO = parse("""
[market]
usd_per_hour = { "ml.g5.xlarge" = 1.5 }
[regions.eu-west-1.market]
usd_per_hour = { "ml.g5.xlarge" = 1.6 }
quotas = { "ml.g5.xlarge" = 4 }
spot_quotas = { "ml.g5.xlarge" = 1 }
[regions.us-west-2.capacity]
instances = { "ml.g5.xlarge" = 2 }
interruptions_per_hour = 0.5
[regions.us-east-1.capacity]
insufficient = 1.0
""")


def wanting(count, instance_type="ml.g5.xlarge", **limits):
    return Intent(cluster=Cluster(instance_type, count=count), limits=Limits(**limits))


def found(intent):
    return {finding.text: finding.state for finding in look_at_market(SCENARIO, intent)}


def test_without_a_job_each_type_of_each_region_is_told_and_nothing_is_bad():
    assert found(Intent()) == dict.fromkeys(
        [
            "eu-west-1: ml.g5.xlarge, 1.6 USD/h, quota 4, spot quota 1, any number of instances",
            "us-west-2: ml.g5.xlarge, 1.5 USD/h, 2 instances",
            "us-west-2: a job on spot capacity is interrupted 0.5 times an hour",
            "us-east-1: ml.g5.xlarge, 1.5 USD/h, any number of instances",
            "us-east-1: 100% of the jobs get no instances",
            "elsewhere: ml.g5.xlarge, 1.5 USD/h, any number of instances",
        ],
        State.GOOD,
    )


@pytest.mark.parametrize(
    ("intent", "regions"),
    [
        (wanting(2), ["us-east-1"]),
        (wanting(3), ["us-west-2", "us-east-1"]),
        (wanting(5), ["eu-west-1", "us-west-2", "us-east-1"]),
        (wanting(2, spot=True), ["eu-west-1", "us-east-1"]),
    ],
    ids=["fits", "capacity", "quota", "spot quota"],
)
def test_where_a_job_cannot_have_its_instances_that_is_bad_with_a_remedy(intent, regions):
    lacking = [finding for finding in look_at_market(SCENARIO, intent) if finding.state is State.BAD]
    assert [finding.text.partition(":")[0] for finding in lacking] == regions
    assert all("another type or a region" in finding.remedy for finding in lacking)
    # In the way of a job stands what its own region lacks; a grid has the others.
    assert {finding.text.partition(":")[0] for finding in lacking if finding.needed} <= {LOCAL_REGION}


def test_of_a_choice_of_types_one_that_the_region_has_suffices():
    scenario = parse('[market]\nquotas = { "ml.g5.xlarge" = 1, "ml.p3.2xlarge" = 8, "ml.g4dn.xlarge" = 0 }')

    def needed(count, *alternatives):
        cluster = Cluster("ml.g5.xlarge", count=count, alternatives=alternatives)
        findings = list(look_at_market(scenario, Intent(cluster=cluster)))
        return [(finding.text.split(", ")[0].split()[-1], finding.state, finding.needed) for finding in findings]

    lacking = ("ml.g5.xlarge", State.BAD, True)
    assert needed(2) == [lacking]
    assert needed(2, "ml.p3.2xlarge") == [("ml.g5.xlarge", State.BAD, False), ("ml.p3.2xlarge", State.GOOD, True)]
    assert needed(2, "ml.g4dn.xlarge") == [lacking, ("ml.g4dn.xlarge", State.BAD, True)]


def test_at_which_lines_jobs_are_interrupted_is_told():
    scenario = parse('[capacity]\ninterrupted_at = ["epoch 60 of 200"]')
    (finding,) = look_at_market(scenario, Intent())
    assert finding.text == "everywhere: a job on spot capacity is interrupted at the line 'epoch 60 of 200'"


def test_a_type_that_the_scenario_does_not_name_has_no_price_and_no_limit():
    texts = list(found(wanting(9, "ml.p4d.24xlarge")))
    assert "eu-west-1: ml.p4d.24xlarge, no price, any number of instances" in texts


def test_a_scenario_without_a_market_says_nothing():
    assert list(look_at_market(parse("[container]\nuser = 7"), wanting(100))) == []


def test_what_the_region_of_a_job_on_this_machine_lacks_stands_in_its_way():
    scenario = parse('[market]\nquotas = { "ml.g5.xlarge" = 1 }')
    (finding,) = look_at_market(scenario, wanting(2))
    assert (finding.state, finding.needed) == (State.BAD, True)

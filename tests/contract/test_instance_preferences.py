"""A choice of instance types, as it is sent and as Describe tells it."""

import pytest

from raysm.contract.instance_preferences import preferred, selected, settled

PLAIN = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
TYPES = [{"InstanceType": "ml.p5.48xlarge"}, {"InstanceType": "ml.p4d.24xlarge"}]
ONE_COUNT = {"InstancePreferences": TYPES, "InstanceCount": 2}
OWN_COUNTS = {
    "InstancePreferences": [{**each, "InstanceCount": count} for count, each in zip((1, 2), TYPES, strict=True)]
}


def test_each_type_has_its_own_number_of_instances_or_that_of_all():
    assert preferred(ONE_COUNT) == (("ml.p5.48xlarge", 2), ("ml.p4d.24xlarge", 2))
    assert preferred(OWN_COUNTS) == (("ml.p5.48xlarge", 1), ("ml.p4d.24xlarge", 2))
    assert preferred(PLAIN) == ()


@pytest.mark.parametrize("resources", [ONE_COUNT, OWN_COUNTS])
def test_it_is_the_first_until_the_service_has_chosen(resources):
    assert settled(resources)["InstanceType"] == "ml.p5.48xlarge"
    chosen = settled(selected(resources, *preferred(resources)[1]))
    assert (chosen["InstanceType"], chosen["InstanceCount"]) == ("ml.p4d.24xlarge", 2)


def test_without_a_choice_it_stays_as_it_is():
    assert settled(PLAIN) is PLAIN

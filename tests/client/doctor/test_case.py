"""The case: what is known of a job, and what is asked of the account once."""

import pytest

from raysm.client.doctor.case import Intent, intent_of
from raysm.contract.job_api import PROCESSING
from raysm.request import Cluster, InstanceGroup, Security


def test_options_that_no_check_looks_at_are_left_out():
    intent = intent_of({"kind": "processing", "name": "x", "wheels": ("a.whl",), "if_done": "run"})
    assert intent == Intent(kind="processing", wheels=("a.whl",))


@pytest.mark.parametrize(
    ("cluster", "counts"),
    [
        (None, ()),
        (Cluster("ml.m5.large", count=3), ({"ml.m5.large": 3},)),
        (
            Cluster(groups=(InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.c5.large", 2))),
            ({"ml.m5.large": 1, "ml.c5.large": 2},),
        ),
        (Cluster("ml.m5.large", count=3, alternatives=("ml.c5.large",)), ({"ml.m5.large": 3}, {"ml.c5.large": 3})),
    ],
)
def test_instances_are_counted_by_type_for_each_way_to_have_them(cluster, counts):
    intent = Intent(cluster=cluster)
    assert (intent.choices, intent.size) == (counts, sum(counts[0].values()) if counts else 0)


def test_a_case_asks_who_calls_once(account):
    case = account.case(Intent(kind="processing"))
    assert (case.caller, case.partition) == (case.caller, "aws")
    assert [name for name, _ in account.clients["sts"].calls] == ["get_caller_identity"]
    assert (case.api, case.region) == (PROCESSING, "eu-west-1")


def test_a_key_that_is_named_twice_is_one(account):
    case = account.case(Intent(security=Security(volume_kms_key="k", output_kms_key="k")))
    assert case.keys == ("k",)

"""Quotas as Service Quotas lists them: told by their names, the account's own before AWS's defaults."""

import pytest

from raysm.errors import ServiceError
from raysm.grid.place import Place
from raysm.grid.planning import all_quotas, quota_place, read_quotas
from tests.support.quotas import QuotaPages
from tests.support.sagemaker import refusal

G5, P4 = "ml.g5.xlarge", "ml.p4d.24xlarge"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (f"{G5} for training job usage", Place(region="us-east-1", instance_type=G5)),
        (f"{G5} for spot training job usage", Place(region="us-east-1", instance_type=G5, spot=True)),
        (f"{G5} for training warm pool usage", None),
        (f"{G5} for processing job usage", None),
        (f"{G5} for endpoint usage", None),
        ("Number of instances across all training jobs", None),
    ],
)
def test_a_quota_is_told_by_its_name(name, place):
    assert quota_place(name, "us-east-1") == place


def read(client, types=(G5, P4), markets=(False,)):
    quotas = read_quotas(client.service, types, markets)
    return {(place.instance_type, place.spot): (quota.limit, quota.source) for place, quota in quotas.items()}


OWN = [(f"{G5} for training job usage", 4.0), ("else", 1.0)]
DEFAULTS = [(f"{G5} for training job usage", 0.0), (f"{P4} for training job usage", 0.0), ("not read", 9.0)]


def test_the_accounts_own_value_stands_before_the_default_and_no_more_is_read_than_is_asked_for():
    client = QuotaPages(OWN, DEFAULTS)
    assert read(client) == {(G5, False): (4, "api"), (P4, False): (0, "api")}
    assert client.pages == 4


def test_a_quota_that_is_not_listed_is_not_known():
    assert read(QuotaPages(OWN, DEFAULTS), markets=(True,)) == {}


def test_who_may_not_read_them_is_told_so():
    with pytest.raises(ServiceError, match="AccessDenied"):
        read(QuotaPages([], [], error=refusal("AccessDeniedException", "no", "ListServiceQuotas")))


def test_all_that_are_of_training_instances_are_listed_and_the_accounts_own_value_counts():
    own = [("ml.g5.xlarge for training job usage", 4.0), ("Number of notebooks", 9.0)]
    defaults = [("ml.g5.xlarge for training job usage", 0.0), ("ml.g5.xlarge for spot training job usage", 2.0)]
    quotas = all_quotas(QuotaPages(own, defaults).service)
    assert {(place.spot, quota.limit) for place, quota in quotas.items()} == {(False, 4), (True, 2)}

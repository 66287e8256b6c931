"""Quotas as Service Quotas lists them: told by their names, the account's own before AWS's defaults."""

import pytest

from raysm.client.service import Service
from raysm.errors import ServiceError
from raysm.grid.place import Place
from raysm.grid.quotas import quota_place, read_quotas
from raysm.request import AWS
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


class Quotas:
    """Service Quotas, a quota a page."""

    def __init__(self, own, defaults, error=None):
        self.lists = {"own": own, "defaults": defaults}
        self.error = error
        self.pages = 0

    def _page(self, which, request):
        if self.error is not None:
            raise self.error
        self.pages += 1
        quotas, place = self.lists[which], int(request.get("NextToken", 0))
        more = {"NextToken": str(place + 1)} if place + 1 < len(quotas) else {}
        return {"Quotas": [{"QuotaName": name, "Value": value} for name, value in quotas[place : place + 1]], **more}

    def list_service_quotas(self, **request):
        return self._page("own", request)

    def list_aws_default_service_quotas(self, **request):
        return self._page("defaults", request)


def read(client, types=(G5, P4), markets=(False,)):
    service = Service(AWS(role="arn:aws:iam::1:role/r", region="us-east-1"), clients=lambda name: client)
    quotas = read_quotas(service, types, markets)
    return {(place.instance_type, place.spot): (quota.limit, quota.source) for place, quota in quotas.items()}


OWN = [(f"{G5} for training job usage", 4.0), ("else", 1.0)]
DEFAULTS = [(f"{G5} for training job usage", 0.0), (f"{P4} for training job usage", 0.0), ("not read", 9.0)]


def test_the_accounts_own_value_stands_before_the_default_and_no_more_is_read_than_is_asked_for():
    client = Quotas(OWN, DEFAULTS)
    assert read(client) == {(G5, False): (4, "api"), (P4, False): (0, "api")}
    assert client.pages == 4


def test_a_quota_that_is_not_listed_is_not_known():
    assert read(Quotas(OWN, DEFAULTS), markets=(True,)) == {}


def test_who_may_not_read_them_is_told_so():
    with pytest.raises(ServiceError, match="AccessDenied"):
        read(Quotas([], [], error=refusal("AccessDeniedException", "no", "ListServiceQuotas")))

"""A grid before it begins: its rows, what is known of places, and the plan."""

import functools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from raysm.client.service import Service
from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Place, Quota
from raysm.grid.plan import ask_quotas, planned, prices_of, quota_place
from raysm.grid.rows.source import source_of
from raysm.local.scenario import Market, Scenario
from raysm.local.server.market import MarketService
from raysm.request import Local, Script

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


TYPE = "ml.g5.xlarge"
REGIONS = ("us-east-1", "eu-west-1")


class Regions:
    """Services whose prices_in and quotas the embedded server's own code tells, without the server."""

    def __init__(self, lists=True, error=None, **markets):
        self.market = MarketService(Scenario(regions={name: Scenario(market=each) for name, each in markets.items()}))
        self.lists, self.error, self.asked = lists, error, []

    def __call__(self, target):
        region = target.regions[0] if isinstance(target, Local) else target.region
        lists = SimpleNamespace(lists_prices=self.lists, lists_quotas=self.lists)
        here = SimpleNamespace(region=region, connection=lists)

        def call(client, operation, **parameters):
            self.asked.append((region, operation))
            if self.error is not None:
                raise self.error
            targets = {
                "get_products": "AWSPriceListService.GetProducts",
                "list_service_quotas": "ServiceQuotasV20190624.ListServiceQuotas",
                "list_aws_default_service_quotas": "ServiceQuotasV20190624.ListAWSDefaultServiceQuotas",
            }
            return json.loads(json.dumps(self.market.answer(targets[operation], parameters, region)))

        here.call = call
        here.pages = functools.partial(Service.pages, here)
        return here


def prices_in(services):
    return prices_of(map(services, (Local(regions=(name,)) for name in REGIONS)))


def quotas_in(services):
    return ask_quotas(map(services, (Local(regions=(name,)) for name in REGIONS)), (TYPE,), (False,))


def test_prices_are_those_that_the_regions_themselves_tell():
    services = Regions(**{"us-east-1": Market(usd_per_hour={TYPE: 2.0}), "eu-west-1": Market(usd_per_hour={TYPE: 3.0})})
    table = prices_in(services)
    assert [table.price(TYPE, region).usd_per_hour for region in REGIONS] == [2.0, 3.0]


def test_a_region_that_cannot_be_reached_is_not_taken_for_one_without_prices():
    with pytest.raises(ServiceError, match="no way"):
        prices_in(Regions(error=ServiceError("no way", is_transient=True)))


def test_quotas_are_read_in_every_region_that_lists_them():
    quotas, notes = quotas_in(Regions(**{"eu-west-1": Market(quotas={TYPE: 4})}))
    assert quotas == {Place(region="eu-west-1", instance_type=TYPE): Quota(limit=4, source="api")}
    assert notes == ()


def test_quotas_that_cannot_be_read_are_said_and_count_as_none():
    quotas, (note,) = quotas_in(Regions(error=ServiceError("AccessDenied", code="AccessDenied")))
    assert quotas == {}
    assert "the quotas are unknown, and the plan assumes none: AccessDenied" in note


def request(tmp_path, target, rows, **more):
    (tmp_path / "train.py").write_text("")
    template = Template(workload=Script(str(tmp_path / "train.py")), target=target)
    return GridRequest(name="g", template=template, source=source_of(rows), instance_types=("local",), **more)


def test_this_machine_plays_every_region_that_a_row_names(tmp_path):
    rows = [{"key": "a", "region": "us-west-2"}, {"key": "b", "region": "eu-west-1"}]
    grid = planned(request(tmp_path, Local(), rows))
    assert set(grid.request.template.target.regions) >= {"us-west-2", "eu-west-1"}
    assert [each.offer.place.region for each in grid.plan.assigned] == ["us-west-2", "eu-west-1"]
    assert (grid.facts.quotas, grid.facts.notes) == ({}, ())


def test_a_script_that_is_not_there_is_refused_before_there_is_a_grid_of_its_name(tmp_path):
    def asked(name):
        template = Template(workload=Script(str(tmp_path / name)), target=Local())
        return replace(request(tmp_path, Local(), [{"key": "a", "script": "train"}]), template=template)

    with pytest.raises(InvalidRequest, match=r"trian\.py' is not there"):
        planned(asked("trian.py"))
    # Which one a column names each row says.
    assert planned(asked("{script}.py")).plan.assigned

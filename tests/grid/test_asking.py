"""Prices and quotas before anything is sent: each region is asked for what it tells by itself."""

import functools
import json
from types import SimpleNamespace

import pytest

from raysm.client.service import Service
from raysm.errors import ServiceError
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Place, Quota
from raysm.grid.planning import ask_prices, ask_quotas
from raysm.grid.rows.source import source_of
from raysm.local.scenario import Market, Scenario
from raysm.local.server.market import MarketService
from raysm.request import Local, Script
from tests.support.sagemaker import aws

TYPE = "ml.g5.xlarge"
REGIONS = ("us-east-1", "eu-west-1")


class Regions:
    """Services whose prices and quotas the embedded server's own code tells, without the server."""

    def __init__(self, lists=True, error=None, **markets):
        self.market = MarketService(Scenario(regions={name: Scenario(market=each) for name, each in markets.items()}))
        self.lists, self.error, self.asked = lists, error, []

    def __call__(self, target):
        region = target.regions[0] if isinstance(target, Local) else target.region
        here = SimpleNamespace(region=region, lists_prices=self.lists, lists_quotas=self.lists)

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


def request(target=None):
    return GridRequest(
        name="g",
        template=Template(workload=Script("train.py"), target=target or Local(regions=REGIONS)),
        source=source_of([{"key": "a"}]),
        regions=REGIONS,
        instance_types=(TYPE,),
    )


def asked(what, services, target=None):
    grid = request(target)
    return what(grid, grid.tasks(), None, services)


def test_prices_are_those_that_the_regions_themselves_tell():
    services = Regions(**{"us-east-1": Market(usd_per_hour={TYPE: 2.0}), "eu-west-1": Market(usd_per_hour={TYPE: 3.0})})
    table = asked(ask_prices, services)
    assert [table.price(TYPE, region).usd_per_hour for region in REGIONS] == [2.0, 3.0]


def test_a_region_without_prices_of_its_own_has_none_and_not_those_of_aws():
    table = asked(ask_prices, Regions(**{"us-east-1": Market(usd_per_hour={TYPE: 2.0})}))
    assert table.price(TYPE, "us-east-1").usd_per_hour == 2.0
    assert table.price(TYPE, "eu-west-1") is None


def test_where_no_region_tells_prices_those_at_hand_hold():
    services = Regions(lists=False)
    assert asked(ask_prices, services, aws()).price("ml.m5.large", "us-east-1") is not None
    assert services.asked == []


def test_a_region_that_cannot_be_reached_is_not_taken_for_one_without_prices():
    with pytest.raises(ServiceError, match="no way"):
        asked(ask_prices, Regions(error=ServiceError("no way", is_transient=True)))


def test_quotas_are_read_in_every_region_that_lists_them():
    quotas, notes = asked(ask_quotas, Regions(**{"eu-west-1": Market(quotas={TYPE: 4})}))
    assert quotas == {Place(region="eu-west-1", instance_type=TYPE): Quota(limit=4, source="api")}
    assert notes == ()


def test_quotas_that_cannot_be_read_are_said_and_count_as_none():
    quotas, (note,) = asked(ask_quotas, Regions(error=ServiceError("AccessDenied", code="AccessDenied")))
    assert quotas == {}
    assert "the quotas are not known, and count as none: AccessDenied" in note


def test_a_machine_without_a_scenario_is_asked_for_nothing():
    services = Regions(lists=False)
    assert asked(ask_quotas, services) == ({}, ())
    assert services.asked == []

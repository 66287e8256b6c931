"""The plan of a grid: dollars with their dates, ranges that are honest, and what is impossible and why."""

import functools
import json
from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import pytest

from raysm.core.client.costs.cap import STOP_GRACE_S
from raysm.core.client.costs.prices import PriceTable, RegionPrices, prices_of
from raysm.core.client.service import Service
from raysm.core.protocol.home import scenario_file
from raysm.core.request import AWS, Cluster, Limits, Local
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.market import Market, Offer, Place, Quota
from raysm.features.grid.placement import WAIT_S, Placement
from raysm.features.grid.plan import ask_quotas, assign, make_plan, plan_grid, quota_place
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.template import Template
from raysm.features.script.request import Script
from raysm.local.scenario import Market as LocalMarket
from raysm.local.scenario import Scenario
from raysm.local.server.market import MarketService

STOP_H = STOP_GRACE_S / 3600


def offers(*prices, kind="ml.g5.xlarge"):
    return [
        Offer(
            place=Place(region=f"us-east-{number}", instance_type=kind),
            usd_per_hour=usd,
            price_version="v1",
        )
        for number, usd in enumerate(prices, 1)
    ]


def rows_of(*seconds, **more):
    return [
        Row(key=str(row), position=row, expected_s=each, **more) for row, each in enumerate(seconds)
    ]


def quotas(places, *limits):
    pairs = zip(places, limits, strict=False)
    return Market(
        quotas={offer.place: Quota(limit=limit) for offer, limit in pairs if limit is not None}
    )


def test_rows_queue_for_the_quota_of_their_place():
    (place,) = offers(1.0)
    made = assign(rows_of(1000, 1000, 1000), Placement(offers=[place]), quotas([place], 2))
    assert sorted(each.start_s for each in made) == [0, 0, 1000 + WAIT_S]


G5 = "ml.g5.xlarge"
TODAY = date(2026, 11, 22)
TABLE = PriceTable.of(
    [
        RegionPrices(region="us-east-1", as_of="2026-11-01", version="v1", usd={G5: 2.0}),
        RegionPrices(region="us-west-2", as_of="2026-09-01", version="v0", usd={G5: 1.0}),
    ]
)


def grid(*rows, args=(), options=None, **more):
    template = Template(
        workload=Script("train.py", args=args),
        target=AWS(role="arn:aws:iam::1:role/r"),
        options=options or {},
    )
    source = source_of([{"key": f"k{number}", **row} for number, row in enumerate(rows)])
    return GridRequest(
        name="drives",
        template=template,
        source=source,
        **{"regions": ("us-east-1",), "instance_types": (G5,), **more},
    )


def plan(request, quotas=None, table=TABLE, **more):
    return plan_grid(request, request.read_rows(), table, quotas or {}, today=TODAY, **more)


def test_places_dollars_and_hours_of_rows_that_say_how_long_they_take():
    made = plan(grid({"expected_s": 3600}, {"expected_s": 7200, "count": 2}))
    (place,) = made.places
    assert (place.rows, place.instances, place.usd) == (2, 3, (10.0, 10.0))
    assert (place.price_version, place.price_as_of) == ("v1", "2026-11-01")
    assert made.usd == (10.0, 10.0)
    assert made.hours == pytest.approx((7200 + 240) / 3600)
    assert made.most_usd == pytest.approx(2.0 * 3 * (24 + STOP_H))
    assert made.notes == ()


def test_of_spot_the_range_is_from_nine_tenths_saved_to_nothing():
    made = plan(grid({"expected_s": 3600}, markets=(True,)))
    assert made.usd == (pytest.approx(0.2), 2.0)
    assert any("SageMaker publishes no spot prices" in note for note in made.notes)


def test_rows_without_a_time_cost_what_nobody_knows_and_at_most_their_limit():
    made = plan(
        grid(
            {"lr": 1},
            {"lr": 2, "max_runtime_s": 1800},
            options={"limits": Limits(max_runtime_s=3600)},
        )
    )
    assert (made.usd, made.hours) == (None, None)
    assert made.most_usd == pytest.approx(2.0 * (1 + 0.5 + 2 * STOP_H))
    assert any("expected_s" in note for note in made.notes)


def test_the_volumes_of_jobs_count_in_what_rows_cost_and_in_the_budget():
    prices = {
        "region": "us-east-1",
        "as_of": "2026-11-01",
        "version": "v1",
        "volume_gb_month": 73.0,
    }
    table = PriceTable.of([RegionPrices(**prices, usd={"ml.m5.large": 1.0})])
    options = {"cluster": Cluster(volume_gb=10), "limits": Limits(max_runtime_s=3600)}
    rows = grid({"expected_s": 3600}, instance_types=("ml.m5.large",), options=options)
    made = plan(rows, table=table)
    assert (made.usd, made.most_usd) == ((2.0, 2.0), pytest.approx(2.0 * (1 + STOP_H)))
    with pytest.raises(InvalidRequest, match=r"2\.00 USD.*1\.50 USD"):
        plan(replace(rows, rules=Rules(max_cost=1.5)), table=table)


def test_of_types_among_which_the_service_chooses_the_range_has_the_cheapest_and_the_dearest():
    prices = [
        RegionPrices(
            region="us-east-1",
            as_of="2026-11-01",
            version="v1",
            usd={G5: 2.0, "ml.p3.2xlarge": 5.0},
        )
    ]
    types = {
        "instance_types": (G5, "ml.p3.2xlarge"),
        "options": {"limits": Limits(max_runtime_s=7200)},
    }
    row = {"expected_s": 3600}
    alone = plan(grid(row, **types), table=PriceTable.of(prices))
    assert (alone.usd, alone.most_usd) == ((2.0, 2.0), pytest.approx(2.0 * (2 + STOP_H)))
    any_type = grid(row, **types, rules=Rules(any_type=True))
    made = plan(any_type, table=PriceTable.of(prices))
    assert (made.usd, made.most_usd) == ((2.0, 5.0), pytest.approx(5.0 * (2 + STOP_H)))
    # One of them without a price: what it costs at most nobody knows.
    made = plan(any_type)
    assert (made.usd, made.most_usd) == (None, None)


def test_a_price_that_is_not_known_is_said_and_is_not_nothing():
    made = plan(grid({"expected_s": 60}, regions=("eu-west-1",)))
    assert (made.usd, made.most_usd, made.places[0].usd_per_hour) == (None, None, None)
    assert made.notes[0].startswith("the price of ml.g5.xlarge in eu-west-1 is unknown")


def test_an_unknown_price_and_a_budget_are_refused_with_the_remedy():
    with pytest.raises(InvalidRequest, match="raysm prices .*eu-west-1"):
        plan(grid({"expected_s": 60}, regions=("eu-west-1",), rules=Rules(max_cost=5)))


def test_the_cap_of_each_job_bounds_the_plan_and_needs_prices():
    capped = {"limits": Limits(max_cost=3)}
    assert plan(grid({"lr": 1}, {"lr": 2}, options=capped)).most_usd == 6.0
    with pytest.raises(InvalidRequest, match="raysm prices .*eu-west-1"):
        plan(grid({"expected_s": 60}, regions=("eu-west-1",), options=capped))


def test_the_cap_of_a_day_needs_a_cap_of_the_grid():
    by_day = {"limits": Limits(max_cost_per_day=50)}
    with pytest.raises(InvalidRequest, match="max_cost_per_day.*--max-cost"):
        grid({"lr": 1}, options=by_day)
    assert grid({"lr": 1}, options=by_day, rules=Rules(max_cost=20)).rules.max_cost == 20


def test_an_unknown_price_of_a_scenario_is_set_in_the_scenario(tmp_path):
    scenario_file(tmp_path).touch()
    asked = grid({"expected_s": 60}, regions=("eu-west-1",), rules=Rules(max_cost=5))
    here = replace(
        asked,
        template=replace(asked.template, target=Local(regions=("eu-west-1",), home=str(tmp_path))),
    )
    with pytest.raises(InvalidRequest, match=r"market\.usd_per_hour"):
        plan(here)


def test_a_budget_that_the_rows_exceed_at_best_is_refused():
    assert plan(grid({"expected_s": 3600}, rules=Rules(max_cost=2))).usd == (2.0, 2.0)
    with pytest.raises(InvalidRequest, match=r"2\.00 USD.*1\.90 USD"):
        plan(grid({"expected_s": 3600}, rules=Rules(max_cost=1.9)))


def test_a_budget_that_allows_few_jobs_at_a_time_says_so_and_which_time_limit_allows_more():
    rows = [{"lr": number} for number in range(30)]
    made = plan(grid(*rows, rules=Rules(max_cost=50)))
    (note,) = [note for note in made.notes if "at a time" in note]
    assert note.startswith("1 job at a time, because each could cost up to 48.07 USD")
    assert note.endswith("--max-runtime 360m allows 4")
    within = grid(*rows, rules=Rules(max_cost=50), options={"limits": Limits(max_runtime_s=600)})
    assert not any("at a time" in note for note in plan(within).notes)


def test_data_that_move_are_paid_for_and_of_unknown_size_unknown():
    row = {"region": "us-east-1", "expected_s": 36_000, "input_gb": 100}
    both = {"regions": ("us-east-1", "us-west-2"), "rules": Rules(move_data=True)}
    made = plan(grid(row, **both))
    assert made.transfer_usd == pytest.approx(2.0)
    assert made.usd == (pytest.approx(12.0), pytest.approx(12.0))
    del row["input_gb"]
    assert plan(grid(row, **both)).places[0].place.region == "us-east-1"
    assert plan(grid(row, regions=("us-west-2",), rules=Rules(move_data=True))).usd is None


def test_a_row_that_can_run_nowhere_says_why():
    quotas = {Place(region="us-east-1", instance_type=G5): Quota(limit=4)}
    made = plan(grid({"count": 9}, {"region": "eu-west-1"}, {"expected_s": 5}), quotas)
    assert [each.row.key for each in made.impossible] == ["k0", "k1"]
    assert "the quota leaves 4" in next(iter(made.impossible[0].reasons.values()))
    assert "its data are in eu-west-1" in next(iter(made.impossible[1].reasons.values()))


def test_what_a_program_reads_has_null_for_what_is_not_known():
    made = plan(grid({"lr": 1}, {"count": 9, "region": "eu-west-1"}), notes=("beside",))
    answer = json.loads(json.dumps(made.as_dict()))
    assert (answer["usd"], answer["hours"], answer["rows"]) == (None, None, 2)
    assert answer["impossible"][0]["key"] == "k1"
    assert answer["places"][0]["price_version"] == "v1"
    assert answer["notes"][0] == "beside"


LARGE = "ml.g5.xlarge"
P4 = "ml.p4d.24xlarge"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (f"{LARGE} for training job usage", Place(region="us-east-1", instance_type=LARGE)),
        (
            f"{LARGE} for spot training job usage",
            Place(region="us-east-1", instance_type=LARGE, spot=True),
        ),
        (f"{LARGE} for training warm pool usage", None),
        (f"{LARGE} for processing job usage", None),
        (f"{LARGE} for endpoint usage", None),
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
        self.market = MarketService(
            Scenario(regions={name: Scenario(market=each) for name, each in markets.items()})
        )
        self.lists = lists
        self.error = error
        self.asked = []

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
            return json.loads(
                json.dumps(self.market.answer(targets[operation], parameters, region))
            )

        here.call = call
        here.pages = functools.partial(Service.pages, here)
        return here


def prices_in(services):
    return prices_of(map(services, (Local(regions=(name,)) for name in REGIONS)))


def quotas_in(services):
    return ask_quotas(
        map(services, (Local(regions=(name,)) for name in REGIONS)), (TYPE,), (False,)
    )


def test_prices_are_those_that_the_regions_themselves_tell():
    services = Regions(
        **{
            "us-east-1": LocalMarket(usd_per_hour={TYPE: 2.0}),
            "eu-west-1": LocalMarket(usd_per_hour={TYPE: 3.0}),
        }
    )
    table = prices_in(services)
    assert [table.price(TYPE, region).usd_per_hour for region in REGIONS] == [2.0, 3.0]


def test_a_region_that_cannot_be_reached_is_not_taken_for_one_without_prices():
    with pytest.raises(ServiceError, match="no way"):
        prices_in(Regions(error=ServiceError("no way", is_transient=True)))


def test_quotas_are_read_in_every_region_that_lists_them():
    quotas, notes = quotas_in(Regions(**{"eu-west-1": LocalMarket(quotas={TYPE: 4})}))
    assert quotas == {Place(region="eu-west-1", instance_type=TYPE): Quota(limit=4, source="api")}
    assert notes == ()


def test_quotas_that_cannot_be_read_are_said_and_count_as_none():
    quotas, (note,) = quotas_in(Regions(error=ServiceError("AccessDenied", code="AccessDenied")))
    assert quotas == {}
    assert "the quotas are unknown, and the plan assumes none: AccessDenied" in note


def request(tmp_path, target, rows, **more):
    (tmp_path / "train.py").write_text("")
    template = Template(workload=Script(str(tmp_path / "train.py")), target=target)
    return GridRequest(
        name="g", template=template, source=source_of(rows), instance_types=("local",), **more
    )


def test_this_machine_plays_every_region_that_a_row_names(tmp_path):
    rows = [{"key": "a", "region": "us-west-2"}, {"key": "b", "region": "eu-west-1"}]
    grid = make_plan(request(tmp_path, Local(), rows))
    assert set(grid.request.template.target.regions) >= {"us-west-2", "eu-west-1"}
    assert [each.offer.place.region for each in grid.plan.assigned] == ["us-west-2", "eu-west-1"]
    assert (grid.facts.quotas, grid.facts.notes) == ({}, ())


def test_a_script_that_is_not_there_is_refused_before_there_is_a_grid_of_its_name(tmp_path):
    def asked(name):
        template = Template(workload=Script(str(tmp_path / name)), target=Local())
        return replace(
            request(tmp_path, Local(), [{"key": "a", "script": "train"}]), template=template
        )

    with pytest.raises(InvalidRequest, match=r"trian\.py"):
        make_plan(asked("trian.py"))
    # Which one a column names each row says.
    assert make_plan(asked("{script}.py")).plan.assigned


def test_a_misspelled_instance_type_of_a_row_is_refused_as_that_of_a_job_is(tmp_path):
    with pytest.raises(InvalidRequest, match=r"'ml\.g5\.xlrage'"):
        make_plan(request(tmp_path, Local(), [{"key": "a", "instance_type": "ml.g5.xlrage"}]))

"""``raysm.Grid``: planned, run, gone on with and looked at; against the client's own fake of AWS."""

import pytest

import raysm
from raysm.client.costs.prices import RegionPrices, save_prices
from raysm.errors import InvalidRequest
from raysm.testing import FakeSageMaker
from raysm.views.grid.grid import Grid
from tests.support.homes import in_home
from tests.support.sagemaker import REGION, aws

TYPE = "ml.m5.large"


@pytest.fixture
def fake(tmp_path):
    with in_home(tmp_path / "home"):
        save_prices(RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={TYPE: 2.0}))
        yield FakeSageMaker(tmp_path / "home")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return str(path)


def grid_of(script, rows, **options):
    options = {"instance_type": TYPE, "regions": (REGION,), "on": aws()} | options
    return Grid(raysm.Script(script, args=("--lr", "{lr}")), rows=rows, **options)


def test_a_grid_is_a_value_that_can_be_looked_at(script):
    grid = grid_of(script, "rows.csv", count=3, spot=True, rules=raysm.Rules(retries=5))
    request = grid.request
    assert (request.name, request.count, request.markets, request.rules.retries) == ("train", 3, (True,), 5)
    assert (request.regions, request.instance_types) == ((REGION,), (TYPE,))
    assert repr(grid) == "Grid('train')"


def test_type_and_count_are_the_clusters_where_none_are_given(script):
    cluster = raysm.Cluster("ml.p4d.24xlarge", count=10, volume_gb=100)
    request = raysm.Grid(script, rows=[{"key": "a"}], cluster=cluster, on=aws()).request
    assert (request.instance_types, request.count) == (("ml.p4d.24xlarge",), 10)
    assert raysm.Grid(script, rows=[{"key": "a"}], on=aws()).request.instance_types == ()
    assert raysm.Grid(script, rows=[{"key": "a"}]).request.instance_types == ("local",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"region": REGION}, "takes no option 'region'; did you mean regions"),
        ({"count": -1}, "count is 1 or more"),
        ({"regions": ("here",)}, "'here' is none"),
        ({"rows": 7}, "is no source of rows"),
    ],
    ids=["misspelt", "count", "region", "rows"],
)
def test_what_cannot_be_is_said_in_the_line_that_has_it(script, options, message):
    with pytest.raises(InvalidRequest, match=message):
        grid_of(script, **{"rows": [{"key": "a", "lr": 1}]} | options)


def test_the_plan_reads_the_rows_and_sends_nothing(script, fake):
    plan = grid_of(script, [{"key": "a", "lr": 1, "expected_s": 3600}], on=fake).plan()
    assert plan.usd == (2.0, 2.0)
    assert str(plan).startswith("grid train: 1 rows, nothing is sent")
    assert fake.submitted == []


def test_a_row_becomes_a_job_and_the_same_grid_again_sends_nothing(script, fake):
    looks = []
    end = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake).run(seen=looks.append)
    assert (end.state, end.states, fake.submitted[0].request["TrainingJobName"][-3:]) == ("closed", {"done": 1}, "-a1")
    assert looks[0].name == "train"
    again = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake)
    assert again.run().states == {"done": 1}
    assert len(fake.submitted) == 1
    (row,) = again.rows()
    assert (row.state, row.region, row.instance_type, row.parameters) == ("done", REGION, TYPE, {"lr": 0.5})


def test_a_grid_that_is_stopped_sends_nothing_more(script, fake):
    grid = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake)
    grid.run()
    assert grid.extend([{"key": "b", "lr": 0.6}]) == 1
    assert raysm.attach_grid("train").stop() == 0
    assert grid.run().states == {"done": 1, "stopped": 1}
    assert len(fake.submitted) == 1


def test_a_template_that_takes_what_no_row_has_is_refused_by_the_plan(script):
    with pytest.raises(InvalidRequest, match="lr"):
        grid_of(script, [{"key": "a", "rl": 1}]).plan()

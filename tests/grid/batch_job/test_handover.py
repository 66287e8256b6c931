"""What a controller elsewhere is told: all of a grid but its record, so that it is the same grid there."""

import json

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.batch_job.handover import Handover, handover_of
from raysm.grid.rows.query import Query
from raysm.grid.rules import Rules
from raysm.grid.running import identity_of
from raysm.request import AWS, Input, Limits, Script, Security
from raysm.request.codec import from_json, to_json
from tests.support.handed_over_grids import TYPE
from tests.support.sagemaker import REGION


def travelled(grid):
    """Return what is told as it is read where it arrives."""
    told = handover_of(grid, Script("train.py", args=("{lr}",)))
    return from_json(Handover, json.loads(json.dumps(to_json(told))))


def test_it_is_the_same_grid_wherever_its_files_lie(laptop, tmp_path):
    options = {
        "inputs": {"data": "s3://drives/{key}", "more": Input("s3://more")},
        "limits": Limits(max_runtime_s=60),
        "security": Security(output_kms_key="key"),
        "hyperparameters": {"depth": 3},
        "environment": {"A": "b"},
        "cluster": None,
    }
    grid = laptop.planned(options=options, markets=(True,), count=2)
    request = travelled(grid).request(tmp_path, Rules(retries=7))
    assert identity_of(request) == identity_of(grid.request)
    assert request.template.workload == Script("train.py", args=("{lr}",), source_dir=str(tmp_path / "source"))
    chosen = request.template.options
    assert chosen["inputs"] == {"data": Input("s3://drives/{key}"), "more": Input("s3://more")}
    assert (chosen["limits"], chosen["security"]) == (options["limits"], options["security"])
    assert (chosen["hyperparameters"], chosen["environment"]) == ({"depth": "3"}, {"A": "b"})
    assert "cluster" not in chosen
    assert (request.markets, request.count) == ((True,), 2)
    assert (request.rules.retries, request.is_shared) == (7, True)


def test_its_prices_travel_as_far_as_it_needs_them(laptop):
    told = travelled(laptop.planned())
    assert {each.region for each in told.prices} == {REGION}
    assert all(set(each.usd) <= {TYPE} for each in told.prices)
    assert told.price_table.price(TYPE, REGION).usd_per_hour == 2.0


def test_a_profile_of_this_machine_stays_here_and_its_region_is_named(laptop):
    grid = laptop.planned()
    target = AWS(role=grid.request.template.target.role, profile="mine")
    assert target.within("us-west-2") == AWS(role=target.role, region="us-west-2")
    assert travelled(grid).target.region == REGION


def test_the_database_of_a_query_is_asked_for_only_to_write_back(laptop, tmp_path):
    told = to_json(handover_of(laptop.planned(), Script("train.py")))
    query = Query("SELECT 1 AS key", on="env:CAMPAIGNS_URL")
    told["source"] = {"sql": query.sql, "on": query.on, "params": {}, "at_s": 0.0}
    there = from_json(Handover, told)
    assert there.request(tmp_path, Rules(write_back=True)).source.database == "env:CAMPAIGNS_URL"
    assert there.request(tmp_path, Rules()).source.database is None


def test_packages_travel_beside_it(laptop, tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "own-1.whl").write_bytes(b"")
    request = travelled(laptop.planned()).request(tmp_path, Rules())
    assert [path.name for path in request.template.options["wheels"]] == ["own-1.whl"]


def test_what_another_raysm_has_handed_over_is_refused(laptop):
    told = to_json(handover_of(laptop.planned(), Script("train.py"))) | {"format": 99}
    with pytest.raises(InvalidRequest, match="in the format 99; this one reads 1: give the controller an image"):
        from_json(Handover, told)

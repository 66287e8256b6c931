"""A grid before it begins: its rows, what is known of places, and the plan."""

from dataclasses import replace

import pytest

from raysm.client.service import Service
from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.planning import planned
from raysm.grid.rows.source import source_of
from raysm.request import AWS, Local, Script


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


@pytest.mark.parametrize("regions", [("us-west-2", "eu-west-1"), ("eu-west-1", "us-east-1")])
def test_its_target_stays_in_the_bucket_that_whoever_names_it_looks_into(tmp_path, regions):
    # It lay in that of the grid's first region: nobody found it there, and with other regions it was another grid.
    rows = [{"key": "a", "region": "eu-west-1"}]
    grid = planned(request(tmp_path, Local(), rows, regions=regions, shared=True))
    assert Service(grid.request.template.target).bucket == Service(Local()).bucket


def test_where_nothing_says_a_region_it_is_the_targets_own(tmp_path):
    grid = planned(request(tmp_path, Local(regions=("eu-central-1",)), [{"key": "a"}]))
    assert grid.plan.assigned[0].offer.place.region == "eu-central-1"


def test_a_row_that_cannot_be_is_refused_before_any_place_is_looked_at(tmp_path):
    with pytest.raises(InvalidRequest, match="count"):
        planned(request(tmp_path, Local(), [{"key": "a", "count": 0}]))


def test_a_script_that_is_not_there_is_refused_before_there_is_a_grid_of_its_name(tmp_path):
    def asked(name):
        template = Template(workload=Script(str(tmp_path / name)), target=Local())
        return replace(request(tmp_path, Local(), [{"key": "a", "script": "train"}]), template=template)

    with pytest.raises(InvalidRequest, match=r"trian\.py' is not there"):
        planned(asked("trian.py"))
    # Which one a column names each row says.
    assert planned(asked("{script}.py")).plan.assigned


def test_quotas_that_cannot_be_read_are_said_to_be_unknown(tmp_path):
    class Away(Service):
        def call(self, *args, **more):
            raise ServiceError("the service quotas are away", is_transient=True)

    target = AWS(role="arn:aws:iam::123456789012:role/r", image="train:1", region="us-east-1")
    grid = planned(request(tmp_path, target, [{"key": "a"}]), Away)
    assert grid.facts.quotas == {}
    assert grid.plan.notes[0] == "the quotas are not known, and count as none: the service quotas are away"

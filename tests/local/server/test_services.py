"""What the jobs of a server share, where nobody says otherwise."""

from random import Random

from raysm.local.scenario import Scenario
from raysm.local.server.capacity import Capacity
from raysm.local.server.records import Records
from raysm.local.server.services import Services

PARTS = dict.fromkeys(("moto", "objects", "pools", "stock"))


def test_a_server_plays_what_aws_does_in_any_case_and_gives_the_grace_of_sagemaker(tmp_path):
    records = Records(tmp_path)
    services = Services(records=records, capacity=Capacity(2), **PARTS)
    assert (services.records, services.scenario, services.stop_grace_s) == (records, Scenario(), 120.0)


def test_each_server_has_a_chance_of_its_own_unless_it_is_given_one(tmp_path):
    plain = {**PARTS, "records": Records(tmp_path), "capacity": Capacity(2)}
    assert Services(**plain).chance is not Services(**plain).chance
    chance = Random(7)
    assert Services(**plain, chance=chance).chance is chance

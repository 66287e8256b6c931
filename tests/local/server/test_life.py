"""What carries a job out stands at the kind of its instances."""

import pkgutil

import pytest

from raysm.local.server.life import JobLife, life_of
from raysm.local.server.simulated import SimulatedLife
from raysm.request.instance_kinds import INSTANCE_KINDS
from tests.local.server.test_simulated import World


@pytest.mark.parametrize("kind", INSTANCE_KINDS)
def test_every_kind_names_what_has_all_that_the_api_asks_for(kind):
    life = pkgutil.resolve_name(INSTANCE_KINDS[kind].life)
    assert {name for name in vars(JobLife) if not name.startswith("_")} <= set(dir(life))


def test_a_simulated_job_is_carried_out_by_nobody_but_the_timers(tmp_path):
    here = World(tmp_path)
    assert isinstance(life_of(here.services, here.start().record), SimulatedLife)

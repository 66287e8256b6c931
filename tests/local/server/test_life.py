"""Tests of ``raysm.local.server.life``."""

import pytest

from raysm.local.server.life import JobLife, life_of
from raysm.local.server.run import JobRun
from raysm.local.server.simulated import SimulatedLife
from tests.local.server.test_simulated import World


@pytest.mark.parametrize("kind", [JobRun, SimulatedLife])
def test_both_have_all_that_the_api_asks_for(kind):
    assert {name for name in vars(JobLife) if not name.startswith("_")} <= set(dir(kind))


def test_the_timers_carry_out_a_simulated_job(tmp_path):
    here = World(tmp_path)
    assert isinstance(life_of(here.services, here.start().record), SimulatedLife)

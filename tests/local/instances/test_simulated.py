"""Simulated instances run nothing: whoever wants one to be started is told who plays them."""

import pytest

from raysm.errors import InvalidRequest
from raysm.local.instances import best_kind, missing_for, open_site
from raysm.local.instances.simulated import SimulatedSite


def test_a_site_starts_nothing_and_says_why(tmp_path):
    with open_site("simulated") as site:
        assert type(site) is SimulatedSite
        assert site.base_inside(tmp_path) == tmp_path
        with pytest.raises(InvalidRequest, match="send the job to the embedded SageMaker"):
            site.start([])


def test_every_machine_can_play_them_and_none_takes_them_for_the_best():
    assert missing_for("simulated") is None
    assert best_kind() != "simulated"

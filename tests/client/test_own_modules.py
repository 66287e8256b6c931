"""Which of the user's modules travel with a kind of workload; test_submit has those of functions."""

import pytest

from raysm.client.own_modules import source_of_kind
from raysm.request import Workload
from raysm.request.workload import KINDS
from tests.support.kinds import imported_from


@pytest.mark.parametrize("kind", KINDS)
def test_raysms_own_kinds_bring_nothing_because_raysm_travels_itself(kind):
    assert source_of_kind(Workload.named(kind)) is None


def test_a_kind_brings_its_module_and_its_runners_with_what_they_import(tmp_path):
    with imported_from(tmp_path) as sweep:
        source = source_of_kind(sweep)
    assert sorted(source.files) == ["sweep.py", "sweep_runner.py", "sweep_search.py", "wording.py"]


def test_a_kind_that_others_installed_brings_nothing(tmp_path):
    with imported_from(tmp_path / "site-packages") as sweep:
        assert source_of_kind(sweep) is None

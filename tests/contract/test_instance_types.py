"""Tests of ``raysm.contract.instance_types``."""

import pytest

from raysm.contract.instance_types import gpu_count, has_local_storage, local_storage_gb


@pytest.mark.parametrize(
    ("name", "count"),
    [("ml.p3.16xlarge", 8), ("ml.g5.12xlarge", 4), ("ml.p6-b200.48xlarge", 8), ("ml.m5.large", 0), ("local", 0)],
)
def test_an_instance_has_the_gpus_that_its_page_tells(name, count):
    assert gpu_count(name) == count


@pytest.mark.parametrize(
    "name", ["g4dn.xlarge", "g5.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "m5d.large", "c6gd.large"]
)
def test_a_type_with_disks_of_its_own_is_known_by_its_family(name):
    assert has_local_storage(f"ml.{name}")


def test_the_room_on_all_disks_of_an_instance_is_told_where_it_is_known():
    assert local_storage_gb("ml.g4dn.xlarge") == 125
    assert local_storage_gb("ml.g5.48xlarge") == 7600
    assert local_storage_gb("ml.m5d.large") is None

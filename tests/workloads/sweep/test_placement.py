"""The placement groups of trials: none outlives the sweep, and those of others are left alone."""

from ray.util import placement_group, placement_group_table, remove_placement_group

from raysm.workloads.sweep.placement import Reservation, alive_groups, remove_groups
from raysm.workloads.sweep.room import TrialSize


def test_only_what_was_made_here_is_removed(ray_here):
    others = placement_group([{"CPU": 0.01}])
    ray_here.get(others.ready())
    reservation = Reservation.of(TrialSize(workers=2, cpus=0.01, gpus=0))
    groups = [reservation.to_placement_group() for _ in range(3)]
    ray_here.get([group.ready() for group in groups])
    assert set(alive_groups()) == {group.id.hex() for group in groups}
    assert remove_groups() == []
    assert alive_groups() == []
    assert placement_group_table(others)["state"] == "CREATED"
    remove_placement_group(others)


def test_a_reservation_has_a_bundle_a_worker():
    assert Reservation.of(TrialSize(workers=2, cpus=1, gpus=0.5)).bundles == [{"CPU": 1.0, "GPU": 0.5}] * 2

"""How many trials run at once."""

import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.sweep.room import TrialSize, trials_at_once

TWO = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}]


def size(workers=1, cpus=1.0, gpus=0.0):
    return TrialSize(workers=workers, cpus=cpus, gpus=gpus)


@pytest.mark.parametrize(
    ("of", "most", "at_once"),
    [
        (size(), None, 8),
        (size(cpus=3), None, 2),
        (size(gpus=1), None, 2),
        (size(gpus=0.5), None, 4),
        (size(workers=2, gpus=1), None, 1),
        (size(workers=3), None, 2),
        (size(), 5, 5),
    ],
)
def test_as_many_run_at_once_as_have_room_with_all_their_workers(of, most, at_once):
    assert trials_at_once(TWO, of, most=most) == (at_once, "")


def test_a_wish_for_more_than_there_is_room_for_is_said():
    assert trials_at_once(TWO, size(gpus=1), most=5) == (
        2,
        "2 trials run at once, not 5: the instances have no room for more",
    )


@pytest.mark.parametrize("of", [size(cpus=5), size(workers=3, gpus=1), size(gpus=2)])
def test_where_not_even_one_fits_it_is_refused(of):
    with pytest.raises(InvalidRequest, match="not even one trial fits: it takes .* the instances offer 4 CPUs and 1"):
        trials_at_once(TWO, of)


def test_a_bundle_names_only_what_is_taken():
    assert size(workers=2).bundles == [{"CPU": 1.0}, {"CPU": 1.0}]
    assert size(gpus=1).bundles == [{"CPU": 1.0, "GPU": 1}]

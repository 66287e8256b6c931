"""What a machine remembers of a grid that another one runs."""

import pytest

from raysm.errors import InvalidConfig
from raysm.grid.local_grids import forget_handover, handover_target, keep_handover
from raysm.request import AWS, Local


@pytest.mark.parametrize(
    "target",
    [AWS(role="arn:aws:iam::1:role/r", region="us-west-2", bucket="b"), Local(regions=("eu-west-1",))],
    ids=str,
)
def test_where_to_look_for_it_is_known_until_it_comes_back(tmp_path, target):
    store = tmp_path / "drives.db"
    assert handover_target(store) is None
    keep_handover(store, target)
    assert handover_target(store) == target
    forget_handover(store)
    assert handover_target(store) is None
    forget_handover(store)


def test_a_note_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    (tmp_path / "drives.elsewhere").write_text("{")
    with pytest.raises(InvalidConfig):
        handover_target(tmp_path / "drives.db")

"""What a machine remembers of a grid that another one runs."""

import pytest

from raysm.errors import InvalidConfig
from raysm.grid.handed_over import forget, keep, target_of
from raysm.request import AWS, Local


@pytest.mark.parametrize(
    "target",
    [AWS(role="arn:aws:iam::1:role/r", region="us-west-2", bucket="b"), Local(regions=("eu-west-1",))],
    ids=str,
)
def test_where_to_look_for_it_is_known_until_it_comes_back(tmp_path, target):
    store = tmp_path / "drives.db"
    assert target_of(store) is None
    keep(store, target)
    assert target_of(store) == target
    forget(store)
    assert target_of(store) is None
    forget(store)


def test_a_note_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    (tmp_path / "drives.elsewhere").write_text("{")
    with pytest.raises(InvalidConfig):
        target_of(tmp_path / "drives.db")

"""A laptop, and the account to which it hands a grid over."""

import pytest

from tests.support.handed_over_grids import handed_over


@pytest.fixture
def laptop(tmp_path):
    with handed_over(tmp_path) as laptop:
        yield laptop

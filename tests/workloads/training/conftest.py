"""Ranks that stay, for all tests of this folder that train in several processes."""

import pytest

from tests.support.standing_ranks import standing_ranks


@pytest.fixture(scope="package")
def ranks(tmp_path_factory):
    with standing_ranks(tmp_path_factory.mktemp("ranks")) as standing:
        yield standing

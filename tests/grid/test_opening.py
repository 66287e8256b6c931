"""Grids are found by their names."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.limiter import Limiter
from raysm.grid.local_grids import grid_names, only_grid, opened
from raysm.grid.rules import Rules
from raysm.grid.running import LIMITS
from raysm.grid.store import Store, folder, path_of
from tests.support.homes import in_home


@pytest.fixture
def home(tmp_path):
    with in_home(tmp_path):
        folder().mkdir(parents=True)
        yield tmp_path


def make(*names):
    for name in names:
        store = Store(path_of(name))
        store.make(name, rules=Rules(), now=0.0)
        store.close()


def test_a_grid_is_opened_by_its_name_and_others_are_listed(home):
    make("a", "b")
    with opened("b") as store:
        assert store.grid().name == "b"
    with pytest.raises(InvalidRequest, match="there is no grid 'c' .* there are a, b"), opened("c"):
        pass


def test_the_only_one_need_not_be_named(home):
    make("a")
    assert only_grid() == "a"
    make("b")
    with pytest.raises(InvalidRequest, match="name the grid; this machine has a, b"):
        only_grid()


def test_the_rates_of_all_grids_are_no_grid(home):
    Limiter(folder() / LIMITS).close()
    assert grid_names() == []

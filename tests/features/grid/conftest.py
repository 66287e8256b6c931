"""The store of a grid without rows."""

import pytest

from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store
from tests.support.memory_folder import tmp_path

__all__ = ["store", "tmp_path"]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0)
    yield store
    store.close()

"""Grids of this machine: their names, and where their jobs are sent."""

import pytest

from raysm.core.request import AWS, Local
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.features.grid.local_grids import (
    GridTarget,
    SentController,
    keep_target,
    only_grid,
    opened,
    read_target,
)
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store, folder, path_of
from tests.support.homes import in_home


@pytest.mark.parametrize(
    "target",
    [
        AWS(role="arn:aws:iam::1:role/r", region="us-west-2", bucket="b"),
        Local(regions=("eu-west-1",)),
    ],
    ids=str,
)
def test_where_its_jobs_are_sent_and_which_batch_job_runs_it_is_kept_beside_it(tmp_path, target):
    store = tmp_path / "drives.db"
    assert read_target(store) is None
    controller = SentController(id="id-1", queue="controllers", region="eu-west-1")
    for kept in (
        GridTarget(target=target),
        GridTarget(target=target, away="s3://b/g", controller=controller),
    ):
        keep_target(store, kept)
        assert read_target(store) == kept


def test_a_note_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    (tmp_path / "drives.target").write_text("{")
    with pytest.raises(InvalidConfig):
        read_target(tmp_path / "drives.db")


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
    with pytest.raises(InvalidRequest, match="'c'.* a, b"), opened("c"):
        pass


def test_the_only_one_need_not_be_named(home):
    make("a")
    assert only_grid() == "a"
    make("b")
    with pytest.raises(InvalidRequest, match=" a, b"):
        only_grid()

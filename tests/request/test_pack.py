"""Rows that share a job, as a request."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request import Script
from raysm.request.codec import from_json, to_json
from raysm.request.pack import Pack, PackedRow
from raysm.request.workload import Workload

ROWS = (
    PackedRow(key="a", name="aaaaaaaa", args=("--lr", "0.1"), hyperparameters={"depth": "2"}, max_runtime_s=60),
    PackedRow(key="b", name="bbbbbbbb", environment={"MODE": "fast"}, max_runtime_s=60),
)


def test_it_travels_and_comes_back_as_it_was():
    pack = Pack("train.py", rows=ROWS, cpus=0.5, gpus=0.0)
    assert from_json(Workload.named("pack"), to_json(pack), "workload") == pack


def test_it_is_a_script_whose_source_travels():
    pack = Pack("deep/train.py", source_dir="src", rows=ROWS)
    assert pack.entry_script is pack
    assert pack.title == "train"
    moved = pack.moved_to("train.py")
    assert (moved.script, moved.source_dir, moved.rows) == ("train.py", None, ROWS)


def test_what_is_told_of_it_is_how_many_rows_and_not_what_stands_in_them():
    assert Pack("train.py", rows=ROWS).parameters == {"rows": 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": ()}, "there is no row"),
        ({"rows": (ROWS[0], ROWS[0])}, "two rows have one name"),
        ({"cpus": 0}, "cpus is above 0"),
        ({"gpus": -1.0}, "gpus not negative"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(InvalidRequest, match=words):
        Pack("train.py", **{"rows": ROWS} | changes)


def test_only_a_script_that_joins_no_cluster_by_itself_can_share_a_job():
    assert Script("train.py").is_one_program
    assert not Script("train.py", ray_init=True).is_one_program
    assert not Pack("train.py", rows=ROWS).is_one_program

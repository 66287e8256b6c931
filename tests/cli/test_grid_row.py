"""``raysm grid row``: from a command line to the rows of one child."""

import contextlib

import pytest

from raysm.cli.arguments import parse
from raysm.cli.grid import request_of
from raysm.cli.grid_row import run
from raysm.cli.main import main
from raysm.errors import InvalidRequest

PLACES = ["--instance-type", "ml.g5.xlarge"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "array.txt").write_text("us-west-2,s3://drives/sf\neu-central-1,s3://drives/st\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


def arguments_of(*argv):
    return parse(["grid", "row", "train.py", *PLACES, *argv])


def test_the_lines_of_an_array_file_are_rows_by_the_names_of_their_columns(folder):
    asked = arguments_of("--rows", "array.txt", "--columns", "region,input_data", "--index", "1")
    tasks = request_of(asked).tasks()
    assert [(task.region, task.inputs) for task in tasks] == [
        ("us-west-2", {"data": "s3://drives/sf"}),
        ("eu-central-1", {"data": "s3://drives/st"}),
    ]
    assert (asked.index, asked.per_child, asked.wait) == (1, 1, False)


def test_columns_are_for_a_file_that_has_no_names_of_its_own(folder):
    with pytest.raises(InvalidRequest, match="--columns"):
        request_of(arguments_of("--sql", "x.db", "SELECT 1", "--columns", "a", "--index", "0"))


def test_columns_without_a_file_are_refused(folder):
    with pytest.raises(InvalidRequest, match="--rows FILE"):
        request_of(arguments_of("--columns", "a", "--index", "0"))


@pytest.mark.parametrize("index", ["", "-1", "x"])
def test_outside_of_an_array_there_is_no_index_and_that_is_said(folder, index, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["grid", "row", "train.py", *PLACES, "--rows", "array.txt", f"--index={index}"])
    assert ended.value.code == 2
    assert "AWS_BATCH_JOB_ARRAY_INDEX" in capsys.readouterr().err


def test_a_child_has_at_least_one_row(folder):
    asked = arguments_of("--rows", "array.txt", "--columns", "region,input_data", "--index", "0", "--per-child", "0")
    with pytest.raises(InvalidRequest, match="--per-child is 1 or more, got 0"):
        run(request_of(asked), asked, None)

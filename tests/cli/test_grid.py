"""``raysm grid plan``: from a command line and files to lines, with nothing sent."""

import contextlib
import json
import sqlite3

import pytest

from raysm.cli.arguments import parse
from raysm.cli.grid import request_of
from raysm.cli.main import main
from raysm.errors import InvalidRequest

ON = ["--on", "aws", "--role", "arn:aws:iam::123456789012:role/r"]
PLACES = ["--regions", "us-east-1", "--instance-type", "ml.g5.12xlarge"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "rows.csv").write_text("key,lr,expected_s\na,0.1,3600\nb,0.2,7200\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


def request(*argv):
    return request_of(parse(["grid", "plan", *argv]))


def test_a_script_with_rows_of_a_file_is_a_grid(folder):
    grid = request("train.py", "--rows", "rows.csv", *PLACES, "--instances", "4", "--spot", "--", "--lr", "{lr}")
    assert (grid.name, grid.count, grid.markets, grid.regions) == ("train", 4, (True,), ("us-east-1",))
    assert grid.template.workload.args == ("--lr", "{lr}")
    assert [task.key for task in grid.tasks()] == ["a", "b"]


def test_flags_win_over_the_file_and_the_file_over_the_project(folder):
    (folder / "raysm.toml").write_text("[limits]\nmax_runtime_s = 11\nmax_restarts = 5\n[cluster]\nvolume_gb = 7\n")
    (folder / "drives.toml").write_text(
        'script = "train.py"\nrows = "rows.csv"\ncount = 3\nregions = ["us-west-2"]\ninstance_type = "ml.g5.xlarge"\n'
        "[limits]\nmax_runtime_s = 22\nmax_restarts = 1\n[rules]\nretries = 9\nparallel = 8\n"
    )
    grid = request("drives.toml", "--max-runtime", "33", "--retries", "0", "--instances", "2")
    limits = grid.template.options["limits"]
    assert (limits.max_runtime_s, limits.max_restarts) == (33, 1)
    assert grid.template.options["cluster"].volume_gb == 7
    assert (grid.name, grid.count, grid.regions) == ("drives", 2, ("us-west-2",))
    assert (grid.rules.retries, grid.rules.parallel) == (0, 8)


def test_a_flag_of_the_target_that_the_file_names_is_taken(folder):
    (folder / "drives.toml").write_text('script = "train.py"\nrows = "rows.csv"\non = "aws"\n[aws]\nimage = "old"\n')
    target = request("drives.toml", *ON[2:], "--region", "eu-west-1").template.target
    assert (target.kind, target.role, target.region, target.image) == ("aws", ON[3], "eu-west-1", "old")
    with pytest.raises(InvalidRequest, match="--role belongs to --on aws"):
        request("drives.toml", "--on", "local", *ON[2:])
    with pytest.raises(InvalidRequest, match="--role belongs to --on aws"):
        request("train.py", "--rows", "rows.csv", *ON[2:])


def test_rows_have_the_packages_of_a_requirements_file_and_the_wheels_that_travel(folder):
    (folder / "requirements.txt").write_text("tqdm>=4\nsix\n")
    packages = ["--requirement", "requirements.txt", "--wheel", "own-1-py3-none-any.whl"]
    grid = request("train.py", "--rows", "rows.csv", *packages)
    assert list(grid.template.options["requirements"]) == ["tqdm>=4", "six", "own==1"]


def test_rows_of_a_query_take_values_that_are_bound(folder):
    with sqlite3.connect("campaigns.db") as connection:
        connection.execute("CREATE TABLE drives (campaign TEXT, day TEXT)")
        connection.execute("INSERT INTO drives VALUES ('a', '2026-10-02'), ('b', '2026-09-01')")
    connection.close()
    query = "SELECT campaign AS key FROM drives WHERE day >= :since"
    grid = request("train.py", "--sql", "campaigns.db", query, "--param", "since=2026-10-01", *PLACES)
    assert [task.key for task in grid.tasks()] == ["a"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train.py"], "the grid has no rows; give --rows FILE"),
        (["train.py", "--rows", "rows.csv", "--param", "a=1"], "--param goes with a query"),
        (["train.py", "--sql", "a.db", "SELECT :a", "--param", "a"], "--param takes NAME=VALUE"),
        (["train.py", "--sql", "a.db", "SELECT :a", "--param", "a=1", "--param", "a=2"], "'a' is given twice"),
        (["train.py", "--rows", "rows.csv", "--parallel", "0"], "parallel"),
    ],
    ids=["no rows", "a value and no query", "no value", "twice", "nothing at a time"],
)
def test_what_cannot_be_is_refused(folder, argv, message):
    with pytest.raises(InvalidRequest, match=message):
        request(*argv)


def test_the_plan_of_this_machine_is_printed_and_nothing_is_begun(folder, capsys):
    assert main(["grid", "plan", "train.py", "--rows", "rows.csv", "--regions", "us-east-1", "--", "{lr}"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("grid train: 2 rows, nothing is sent")
    assert "costs   nothing: the jobs run on this machine" in out
    assert "unknown" not in out
    assert not (folder / ".raysm").exists()


def test_as_json_a_program_reads_it(folder, capsys):
    assert main(["grid", "plan", "train.py", "--rows", "rows.csv", "--regions", "us-east-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2


def test_a_typo_in_a_template_is_refused_with_the_nearest_column(folder, capsys):
    assert main(["grid", "plan", "train.py", "--rows", "rows.csv", "--", "--lr", "{rl}"]) == 2
    assert "did you mean {lr}?" in capsys.readouterr().err

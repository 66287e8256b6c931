"""The verbs about a grid that there is: by its file alone, in another process than the one that runs it."""

import io
import json
import os

import pytest
from rich.console import Console

from raysm.cli import jobs
from raysm.cli.arguments import parse
from raysm.cli.grid_arguments import NAMING
from raysm.cli.grids import VERBS
from raysm.cli.main import main
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.rules import Rules
from raysm.grid.store import Store, path_of
from raysm.grid.task import Task


@pytest.fixture
def grid(tmp_path):
    before, was = os.environ.get("RAYSM_HOME"), os.getcwd()
    os.environ["RAYSM_HOME"] = str(tmp_path)
    os.chdir(tmp_path)
    path = path_of("drives")
    path.parent.mkdir(parents=True, exist_ok=True)
    store = Store(path)
    store.make("drives", rules=Rules(), now=0.0)
    store.add([Task(key=key, position=place, parameters={"lr": 0.1}) for place, key in enumerate("abc")])
    with store.database.transaction("test", fenced=False):
        store.move_task("a", TaskState.WAITING, TaskState.DONE, 1.0)
        store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="exit code: 1")
    yield store
    store.database.close()
    os.chdir(was)
    os.environ.pop("RAYSM_HOME")
    if before is not None:
        os.environ["RAYSM_HOME"] = before


def test_the_only_grid_need_not_be_named(grid, capsys):
    assert main(["grid", "status"]) == 0
    assert "3 rows: 1 done, 1 failed, 1 waiting" in capsys.readouterr().out


def test_status_and_rows_are_json_for_a_program(grid, capsys):
    assert main(["grid", "status", "drives", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {"done": 1, "failed": 1, "waiting": 1}
    assert main(["grid", "rows", "drives", "--state", "failed", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["key"], row["reason"], row["usd"], row["parameters"]) == ("b", "exit code: 1", None, {"lr": 0.1})


def test_rows_are_lines_in_the_order_of_the_source(grid, capsys):
    assert main(["grid", "rows", "drives"]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["key", "a", "b", "c"]


def test_a_row_is_one_line_with_its_job_however_long_its_reason_is(grid, capsys):
    reason = "ValueError: no; correct it\nTraceback (most recent call last):\n  File x\nValueError: no"
    grid.database.connection.execute("UPDATE task SET reason = ? WHERE key = 'b'", (reason,))
    assert main(["grid", "rows", "drives", "--state", "failed"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "state   jobs  key  last job  reason",
        "failed  0     b    -         ValueError: no; correct it",
    ]


def test_the_grids_of_this_machine_are_listed(grid, capsys):
    assert main(["grid", "list"]) == 0
    assert capsys.readouterr().out == "drives  open  3 rows: 1 done, 1 failed, 1 waiting\n"
    assert main(["grid", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "drives"


def test_the_result_of_a_row_that_is_not_done_says_why(grid, capsys):
    assert main(["grid", "result", "drives", "b"]) == 2
    assert "the row 'b' has no result: it is failed: exit code: 1" in capsys.readouterr().err


def test_a_report_is_a_file_with_what_failed_first(grid, tmp_path, capsys):
    assert main(["grid", "report", "drives", "--html", str(tmp_path / "out.html")]) == 0
    text = (tmp_path / "out.html").read_text()
    assert text.index("exit code: 1") > 0
    assert text.index("<td>b</td>") < text.index("<td>a</td>")
    assert main(["grid", "report", "drives"]) == 0
    assert (tmp_path / "drives.html").exists()


def test_a_table_is_refused_while_rows_are_not_done(grid, capsys):
    assert main(["grid", "table", "drives"]) == 2
    assert "2 of 3 rows are not done: b (failed), c (waiting)" in " ".join(capsys.readouterr().err.split())


def test_stop_says_what_it_has_stopped(grid, capsys):
    assert main(["grid", "stop", "drives"]) == 0
    assert grid.grid().state == "closed"
    assert capsys.readouterr().out == "drives: no job is sent any more\n"
    assert main(["grid", "stop", "drives"]) == 0
    assert "drives is closed" in capsys.readouterr().out


def test_failed_rows_wait_again_and_done_ones_stay_done(grid, capsys):
    assert main(["grid", "retry", "drives"]) == 0
    assert grid.states() == {"done": 1, "waiting": 2}
    assert "1 row of drives will be tried again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["status", "none"], "there is no grid 'none'"),
        (["rows", "drives", "--state", "lost"], "a row's state is one of waiting, placed"),
        (["status", "a;b"], "got 'a;b'"),
        (["status", "a\nb"], "got 'a\\nb'"),
        (["status", "../x"], "a grid's name has letters, digits, spaces"),
    ],
)
def test_what_there_is_not_is_said_with_what_there_is(grid, argv, message, capsys):
    assert main(["grid", *argv]) == 2
    assert message in capsys.readouterr().err


def test_without_any_grid_a_name_is_asked_for(tmp_path, capsys):
    before = os.environ.get("RAYSM_HOME")
    os.environ["RAYSM_HOME"] = str(tmp_path / "empty")
    try:
        assert main(["grid", "status"]) == 2
    finally:
        os.environ.pop("RAYSM_HOME")
        if before is not None:
            os.environ["RAYSM_HOME"] = before
    assert "name the grid; this machine has none" in capsys.readouterr().err


def test_every_verb_about_a_grid_that_there_is_has_somebody_who_carries_it_out():
    assert list(VERBS) == list(NAMING)


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["retry", "drives"], {"grid": "drives", "rows": 1}),
        (["stop", "drives"], {"grid": "drives", "state": "closed", "open": 0, "stopped": []}),
        (["report", "drives", "--html", "x.html"], {"grid": "drives", "path": "x.html"}),
        (["extend", "drives", "--rows", "new.csv"], {"grid": "drives", "rows": 2}),
    ],
    ids=["retry", "stop", "report", "extend"],
)
def test_what_is_done_is_said_as_json_too(grid, tmp_path, argv, values, capsys):
    (tmp_path / "new.csv").write_text("key,lr\na,0.1\nd,0.2\ne,0.3\n")
    assert main(["grid", *argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == values


def test_a_grid_is_extended_by_rows_that_are_new(grid, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("key,lr\na,9\nd,0.2\n")
    assert main(["grid", "extend", "drives", "--rows", "new.csv"]) == 0
    assert "1 new row of drives; the controller" in capsys.readouterr().out
    assert {record.task.key: record.task.parameters["lr"] for record in grid.tasks()} == {
        "a": 0.1,
        "b": 0.1,
        "c": 0.1,
        "d": "0.2",
    }


def test_a_grid_that_is_over_is_watched_once(grid, capsys):
    grid.change_grid("closed", 2.0, fenced=False)
    assert main(["grid", "watch", "drives"]) == 0
    assert capsys.readouterr().out.count("grid drives: closed") == 1
    assert main(["grid", "watch", "drives", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["state"] == "closed"


@pytest.mark.parametrize("command", ["logs", "status", "result", "stop"])
def test_a_command_about_jobs_says_which_command_lists_the_jobs_of_a_grid(grid, remote, command):
    with pytest.raises(
        InvalidRequest, match=f"drives is a grid, .* raysm grid rows drives lists them, and raysm {command}"
    ):
        jobs.run(parse([command, "drives"]), Console(file=io.StringIO()), remote.service)

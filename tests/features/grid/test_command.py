"""``raysm grid plan``: from a command line and files to lines, with nothing sent."""

import contextlib
import io
import json
import sqlite3

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.main import main
from raysm.core.protocol.home import Clock
from raysm.errors import InvalidRequest
from raysm.features.grid.batch_job.controller_job import ControllerJob
from raysm.features.grid.command import controller_of, follow, request_of
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store, path_of
from tests.support.homes import in_home

ARRAY_PLACES = ["--instance-type", "ml.g5.xlarge"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "rows.csv").write_text("key,lr,expected_s\na,0.1,3600\nb,0.2,7200\n")
    (tmp_path / "array.txt").write_text("us-west-2,s3://drives/sf\neu-central-1,s3://drives/st\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("name", ["--max-cost", "--budget"])
def test_a_grids_cap_has_an_older_name_too(folder, name):
    asked = parse(["grid", "plan", "train.py", *ARRAY_PLACES, "--rows", "rows.csv", name, "50"])
    assert request_of(asked).rules.max_cost == 50


def test_the_lines_of_an_array_file_are_rows_by_the_names_of_their_columns(folder):
    columns = ["--rows", "array.txt", "--columns", "region,input_data", "--index", "1"]
    asked = parse(["grid", "row", "train.py", *ARRAY_PLACES, *columns])
    rows = request_of(asked).read_rows()
    assert [(row.region, row.inputs) for row in rows] == [
        ("us-west-2", {"data": "s3://drives/sf"}),
        ("eu-central-1", {"data": "s3://drives/st"}),
    ]
    assert (asked.index, asked.per_child, asked.wait) == (1, 1, False)


@pytest.mark.parametrize("index", ["", "-1", "x"])
def test_outside_of_an_array_there_is_no_index_and_that_is_said(folder, index, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["grid", "row", "train.py", *ARRAY_PLACES, "--rows", "array.txt", f"--index={index}"])
    assert ended.value.code == 2
    assert "AWS_BATCH_JOB_ARRAY_INDEX" in capsys.readouterr().err


ROLE = "arn:aws:iam::123456789012:role/controllers"


def asked(*argv, **in_file):
    return controller_of(parse(["grid", "run", "train.py", *argv]), in_file)


def test_the_flags_are_the_job():
    assert asked("--via", "batch", "--job-queue", "team") == ControllerJob(job_queue="team")
    flags = [
        "--job-definition",
        "own",
        "--job-image",
        "raysm",
        "--job-role",
        ROLE,
        "--execution-role",
        ROLE,
    ]
    assert asked("--via", "batch", "--job-queue", "team", *flags) == ControllerJob(
        job_queue="team", job_definition="own", image="raysm", job_role=ROLE, execution_role=ROLE
    )
    public = asked("--via", "batch", "--job-queue", "team", *flags, "--assign-public-ip")
    assert public is not None
    assert public.assign_public_ip


def test_what_the_grids_file_says_holds_where_no_flag_says_another_and_batch_is_asked_for():
    assert asked(
        "--via", "batch", "--job-queue", "own", job_queue="team", image="raysm"
    ) == ControllerJob(job_queue="own", image="raysm")
    assert asked(job_queue="team") is None


def test_what_is_said_of_a_job_that_nobody_asked_for_is_refused():
    with pytest.raises(InvalidRequest, match="--job-queue .*--via batch"):
        asked("--job-queue", "team")


class HandRunning:
    """A controller whose one step is done by hand."""

    def __init__(self, store, added):
        self.store = store
        self.added = added
        self.clock = Clock()

    def run(self, sleep):
        with self.store.database.transaction("test", fenced=False):
            reason = "exit code: 1\nTraceback (most recent call last)\nexit code: 1"
            self.store.rows.move("b[0]", RowState.WAITING, RowState.FAILED, 2.0, reason=reason)
        sleep(0.0)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0)
    store.add([Row(key="a"), Row(key="b[0]", position=1)])
    with store.database.transaction("test", fenced=False):
        store.rows.move("a", RowState.WAITING, RowState.DONE, 1.0)
    yield store
    store.database.close()


def lines(store, added):
    stream = io.StringIO()
    follow(HandRunning(store, added), Console(file=stream, width=20))
    return stream.getvalue().splitlines()


def test_each_row_that_changes_is_one_line_with_its_reason(store):
    assert lines(store, added=2) == ["a: done", "b[0]: failed exit code: 1"]


@pytest.fixture
def grid(tmp_path):
    with in_home(tmp_path), contextlib.chdir(tmp_path):
        path = path_of("drives")
        path.parent.mkdir(parents=True, exist_ok=True)
        store = Store(path)
        store.make("drives", rules=Rules(), now=0.0)
        store.add(
            [
                Row(key=key, position=place, parameters={"lr": 0.1})
                for place, key in enumerate("abc")
            ]
        )
        with store.database.transaction("test", fenced=False):
            store.rows.move("a", RowState.WAITING, RowState.DONE, 1.0)
            store.rows.move("b", RowState.WAITING, RowState.FAILED, 1.0, reason="exit code: 1")
        yield store
        store.database.close()


def test_a_row_is_one_line_with_its_job_however_long_its_reason_is(grid, capsys):
    reason = (
        "ValueError: no; correct it\nTraceback (most recent call last):\n  File x\nValueError: no"
    )
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


def test_stop_says_what_it_has_stopped(grid, capsys):
    assert main(["grid", "stop", "drives"]) == 0
    assert grid.grid().state == "closed"
    assert capsys.readouterr().out == "drives: no further job is sent\n"
    assert main(["grid", "stop", "drives"]) == 0
    assert "drives is closed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["status", "none"], "'none'"),
        (["rows", "drives", "--state", "lost"], "'lost'"),
        (["status", "a;b"], "got 'a;b'"),
        (["status", "a\nb"], "got 'a\\nb'"),
    ],
)
def test_what_there_is_not_is_said_with_what_there_is(grid, argv, message, capsys):
    assert main(["grid", *argv]) == 2
    assert message in capsys.readouterr().err


def test_metrics_of_a_grids_jobs_are_refused_with_the_command_that_has_them(grid, capsys):
    assert main(["jobs", "--grid", "drives", "--metrics", "--on", "local"]) == 2
    assert "raysm jobs --contains drives --metrics" in capsys.readouterr().err


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


def test_a_grid_that_is_over_is_watched_once(grid, capsys):
    grid.change_state("closed", 2.0, fenced=False)
    assert main(["grid", "watch", "drives"]) == 0
    assert capsys.readouterr().out.count("grid drives: closed") == 1
    assert main(["grid", "watch", "drives", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["state"] == "closed"


@pytest.mark.parametrize(
    "argv", [["grid", "plan"], ["grid", "plan", "t.py", "--rows", "r.csv", "--sql", "a", "b"]]
)
def test_what_contradicts_itself_is_refused(argv, capsys):
    with pytest.raises(SystemExit):
        parse(argv)
    assert "raysm grid" in capsys.readouterr().err


PLACES = ["--regions", "us-east-1", "--instance-type", "ml.g5.12xlarge"]


def request(*argv):
    return request_of(parse(["grid", "plan", *argv]))


def test_flags_win_over_the_file_and_the_file_over_the_project(folder):
    (folder / "raysm.toml").write_text(
        "[limits]\nmax_runtime_s = 11\nmax_restarts = 5\n[cluster]\nvolume_gb = 7\n"
    )
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


def test_rows_of_a_query_take_values_that_are_bound(folder):
    with sqlite3.connect("campaigns.db") as connection:
        connection.execute("CREATE TABLE drives (campaign TEXT, day TEXT)")
        connection.execute("INSERT INTO drives VALUES ('a', '2026-10-02'), ('b', '2026-09-01')")
    connection.close()
    query = "SELECT campaign AS key FROM drives WHERE day >= :since"
    grid = request(
        "train.py", "--sql", "campaigns.db", query, "--param", "since=2026-10-01", *PLACES
    )
    assert [row.key for row in grid.read_rows()] == ["a"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train.py"], "--rows FILE"),
        (["train.py", "--rows", "rows.csv", "--param", "a=1"], "--param .*query"),
        (["train.py", "--sql", "a.db", "SELECT :a", "--param", "a"], "--param .*NAME=VALUE"),
        (
            ["train.py", "--sql", "a.db", "SELECT :a", "--param", "a=1", "--param", "a=2"],
            "'a'.* twice",
        ),
        (["train.py", "--rows", "rows.csv", "--parallel", "0"], "parallel"),
    ],
    ids=["no rows", "a value and no query", "no value", "twice", "nothing at a time"],
)
def test_what_cannot_be_is_refused(folder, argv, message):
    with pytest.raises(InvalidRequest, match=message):
        request(*argv)


def test_the_plan_of_this_machine_is_printed_and_nothing_is_begun(folder, capsys):
    assert (
        main(
            [
                "grid",
                "plan",
                "train.py",
                "--rows",
                "rows.csv",
                "--regions",
                "us-east-1",
                "--",
                "{lr}",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("grid train: 2 rows, nothing is sent")
    assert "costs   nothing: the jobs run on this machine" in out
    assert "unknown" not in out
    assert not (folder / ".raysm").exists()

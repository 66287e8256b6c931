"""A grid as it is asked for."""

import json

import pytest

from raysm.core.client.settings import Settings
from raysm.core.request import Local
from raysm.errors import InvalidRequest
from raysm.features.grid.grid_request import GridRequest, extend, read_grid_file
from raysm.features.grid.row import RETRYABLE_STATES, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.store.store import Store
from raysm.features.grid.template import Template
from raysm.features.script.request import Script

DRIVES = """
script = "train.py"
args = ["--lr", "{lr}"]
regions = ["us-east-1", "eu-central-1"]
instance_type = ["ml.p4d.24xlarge", "ml.g6e.48xlarge"]
count = 10
spot = true
max_rows = 50
[rows]
sql = "SELECT campaign AS key, lr FROM drives WHERE day >= :since"
on = "env:CAMPAIGNS_URL"
params = { since = "2026-10-01" }
[rules]
max_cost = 5000
retries = 3
[limits]
max_runtime_s = 3600
[inputs]
data = "s3://bucket-{region}/{key}"
"""


def read(tmp_path, text, name="drives.toml"):
    path = tmp_path / name
    path.write_text(text)
    return read_grid_file(path)


def test_a_file_says_which_batch_job_is_to_run_its_grid(tmp_path):
    file = read(
        tmp_path, 'script = "train.py"\n[batch]\njob_queue = "controllers"\njob_role = "arn"\n'
    )
    assert file.batch == {"job_queue": "controllers", "job_role": "arn"}
    assert read(tmp_path, 'script = "train.py"\n[batch]\nassign_public_ip = true\n').batch == {
        "assign_public_ip": True
    }
    with pytest.raises(InvalidRequest, match=r"batch\.assign_public_ip"):
        read(tmp_path, 'script = "train.py"\n[batch]\nassign_public_ip = "yes"\n')
    with pytest.raises(InvalidRequest, match="'queue'.*job_queue"):
        read(tmp_path, 'script = "train.py"\n[batch]\nqueue = "controllers"\n')


def test_the_whole_file_is_a_grid_and_the_options_of_its_jobs(tmp_path):
    file = read(tmp_path, DRIVES)
    assert (file.name, file.regions, file.count, file.markets) == (
        "drives",
        ("us-east-1", "eu-central-1"),
        10,
        (True,),
    )
    assert file.instance_types == ("ml.p4d.24xlarge", "ml.g6e.48xlarge")
    assert file.rules == Rules(max_cost=5000, retries=3)
    assert file.max_rows == 50
    assert file.source.query.params == {"since": "2026-10-01"}
    settings = Settings([file.layer])
    assert settings.workload().args == ("--lr", "{lr}")
    # From wherever the command is given.
    assert settings.workload().script == str(tmp_path / "train.py")
    assert settings.options()["limits"].max_runtime_s == 3600
    assert settings.options()["inputs"]["data"].uri == "s3://bucket-{region}/{key}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("script = ", "cannot be read"),
        ("nonsense = 1", "nonsense"),
        ("count = 'x'", "count: .*'x'"),
        ("[rules]\nbuget = 1", "rules: .*'buget'"),
        ("[rows]\nfiles = 'a.csv'", r"\[rows\].*'files'"),
        ("[rows]\nfile = 'a.csv'\nsql = 'SELECT 1'", "either a file"),
        ("[rows]\nsql = 'SELECT 1'", "no database"),
        ("rows = 3", r"\[rows\].*got 3"),
        ("rows = 'a.xlsx'", r"a\.xlsx"),
        ("regions = [1]", r"regions\[0\]: .*1"),
        ("[limits]\nmax_runtime = 3", "limits.max_runtime_s"),
    ],
)
def test_what_cannot_be_is_refused_with_the_file_and_the_key(tmp_path, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read(tmp_path, text)


TEMPLATE = json.dumps(
    {"workload": {"args": ["{lr}"]}, "options": {"limits": {"max_runtime_s": 77}}}
)


def made(tmp_path, source):
    store = Store(tmp_path / "g.db")
    store.make(
        "g", rules=Rules(), now=0.0, template=TEMPLATE, source=json.dumps(source.description)
    )
    return store


@pytest.fixture
def joined(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    extend(store, source_of([{"key": key, "lr": 0.1} for key in "abcd"]))
    with store.database.transaction("test", fenced=False):
        store.rows.move("b", RowState.WAITING, RowState.FAILED, 1.0, reason="ValueError: no")
        store.rows.move("c", RowState.WAITING, RowState.DONE, 1.0)
        store.rows.move("d", RowState.WAITING, RowState.PLACED, 1.0)
    yield store
    store.close()


def values(store):
    return {record.row.key: record.row.parameters["lr"] for record in store.rows.all()}


def test_rows_that_are_not_done_take_the_corrected_values_of_the_source(joined):
    assert extend(joined, source_of([{"key": key, "lr": 0.2} for key in "abcd"])) == 0
    assert values(joined) == {"a": 0.2, "b": 0.2, "c": 0.1, "d": 0.1}
    joined.requeue(RETRYABLE_STATES, 2.0)
    assert joined.rows.get("b").state == "waiting"
    assert joined.rows.get("b").row.parameters == {"lr": 0.2}


def test_each_row_that_differs_is_named_with_its_values(joined, caplog):
    extend(
        joined,
        source_of([{"key": "a", "lr": 0.1}, {"key": "b", "lr": 0.2}, {"key": "c", "lr": 0.3}]),
    )
    assert caplog.messages == [
        "row b takes the corrected values of the source: lr was 0.1, is 0.2; to run it again: raysm grid retry g",
        "row c is done and is kept; it differs from the source: lr is 0.1 in the grid and 0.3 in the source; "
        "to compute it again, give it a new key",
    ]


def test_a_done_row_says_that_it_differs_until_the_source_agrees_again(joined):
    extend(joined, source_of([{"key": "c", "lr": 0.3}]))
    extend(joined, source_of([{"key": "c", "lr": 0.4}]))
    assert (
        joined.rows.get("c").reason
        == "differs from the source: lr is 0.1 in the grid and 0.4 in the source"
    )
    extend(joined, source_of([{"key": "c", "lr": 0.1}]))
    assert joined.rows.get("c").reason == ""


def test_another_time_limit_changes_nothing_of_a_done_row(joined):
    extend(joined, source_of([{"key": "c", "lr": 0.1, "max_runtime_s": 60}]))
    assert joined.rows.get("c").reason == ""


def test_a_row_with_an_open_job_keeps_its_values_and_says_so(joined, caplog):
    extend(joined, source_of([{"key": "d", "lr": 0.3}]))
    assert "its open job keeps the recorded values" in caplog.text


def test_the_attempts_with_the_old_values_do_not_count_against_the_corrected_row(joined):
    joined.database.connection.execute(
        "UPDATE task SET attempts = 3, retries_left = 0 WHERE key = 'a'"
    )
    extend(joined, source_of([{"key": "a", "lr": 0.2}]))
    record = joined.rows.get("a")
    assert (record.retries_left, record.retries_reset_at) == (Rules().retries, 3)


def test_values_of_columns_named_like_secrets_are_not_printed(joined, caplog):
    extend(joined, source_of([{"key": "a", "lr": 0.1, "env_API_TOKEN": "abc"}]))
    assert "env_API_TOKEN was None, is '***'" in caplog.text


def test_a_column_that_was_dropped_since_or_a_misspelled_instance_type_is_said_before_any_row_joins(
    tmp_path,
):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    with pytest.raises(InvalidRequest, match="lr"):
        extend(store, source_of([{"key": "b", "rl": 2}]))
    with pytest.raises(InvalidRequest, match=r"'ml\.g5\.xlrage'"):
        extend(store, source_of([{"key": "b", "lr": 2, "instance_type": "ml.g5.xlrage"}]))
    assert store.rows.states() == {}
    store.close()


def test_a_grid_that_is_being_stopped_takes_no_rows(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    store.change_state("stopping", 1.0, fenced=False)
    with pytest.raises(InvalidRequest, match="being stopped"):
        extend(store, source_of([{"key": "b", "lr": 2}]))
    store.close()


def grid(*rows, args=(), **more):
    template = Template(workload=Script("train.py", args=args), target=Local())
    return GridRequest(name="drives", template=template, source=source_of(list(rows)), **more)


@pytest.mark.parametrize(
    "fields", [{"regions": ("useast1",)}, {"count": 0}, {"max_rows": 0}], ids=str
)
def test_what_cannot_be_is_refused_with_its_value(fields):
    value = next(iter(fields.values()))
    with pytest.raises(InvalidRequest, match=str(value[0] if isinstance(value, tuple) else value)):
        grid({"key": "a"}, **fields)


def test_the_older_name_of_a_cap_is_taken_and_not_beside_the_newer_one(tmp_path):
    assert read(tmp_path, 'script = "a.py"\n[rules]\nbudget_usd = 5\n').rules == Rules(max_cost=5)
    with pytest.raises(InvalidRequest, match="budget_usd is the older name of max_cost"):
        Rules(max_cost=5, budget_usd=5)

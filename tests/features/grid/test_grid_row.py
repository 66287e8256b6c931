"""What became of each row: one query for all of them; and grids on this machine."""

import contextlib
import io
import json
import random
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.core.client.service import Service
from raysm.core.protocol.result import MANIFEST, Manifest, ResultFile
from raysm.core.request import AWS, Local
from raysm.core.request.codec import to_json
from raysm.errors import InvalidConfig, InvalidRequest, ServiceError
from raysm.features.grid.grid_row import COLUMNS, TABLE, make_table, row_result, write_back
from raysm.features.grid.local_grids import (
    GridTarget,
    SentController,
    keep_target,
    only_grid,
    opened,
    read_target,
)
from raysm.features.grid.sources.databases import database_of
from raysm.features.grid.store import Store, folder, path_of
from raysm.features.grid.task import RETRYABLE_STATES, Attempt, AttemptState, Rules, Task, TaskState
from raysm.testing import Answer, FakeSageMaker
from tests.support.homes import in_home


def test_a_row_that_is_not_done_has_no_result_and_the_error_says_why(tmp_path):
    service = Service(Local(home=str(tmp_path / "home")))
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0.0)
    store.add([Task(key=key, position=place) for place, key in enumerate("bc")])
    with store.database.transaction("test", fenced=False):
        store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="it is broken")
    for key, message in (("b", "'b'.*it is broken"), ("c", "'c'.*waiting"), ("d", "no row 'd'")):
        with pytest.raises(InvalidRequest, match=message):
            row_result(store, key, service)
    store.database.close()


def predict(batch):
    return {"label": [len(text) for text in batch["text"]]}


def left(*parts, job="predict"):
    """Return what a batch inference leaves whose parts have these columns."""
    files = {}
    stated = []
    for number, columns in enumerate(parts):
        name = f"predictions/part-{number:06}.parquet"
        content = io.BytesIO()
        table = pa.table(columns)
        pq.write_table(table, content)
        files[name] = content.getvalue()
        stated.append(
            ResultFile(
                name=name,
                shape=(table.num_rows,),
                bytes=len(files[name]),
                sha256="0",
                how_to_read="",
                units=("rows",),
            )
        )
    manifest = Manifest(
        job=job, workload={"kind": "batch"}, inputs={}, files=tuple(stated), versions={}, instances=("algo-1",),
        phases_s={},
    )  # fmt: skip
    return Answer(files=files | {MANIFEST: json.dumps(to_json(manifest)).encode()})


@pytest.fixture
def fake(tmp_path):
    with in_home(tmp_path / "home"):
        yield FakeSageMaker(tmp_path / "home")


def ran(fake, *answers, **options):
    """Return a grid of as many rows as there are answers, each of which has ended so."""
    for answer in answers:
        fake.answer("batch", answer)
    rows = [{"key": key, "input_texts": f"s3://texts/{key}"} for key in "abcdef"[: len(answers)]]
    # One after the other, so that each row has the answer of its place.
    rules = raysm.Rules(parallel=1, retries=0, brake=0)
    grid = raysm.Grid(
        raysm.Batch(predict, batch_size=8), rows=rows, on=fake, rules=rules, **options
    )
    grid.run()
    return grid


def test_predictions_of_all_rows_are_one_table_beside_the_keys_in_the_order_of_the_rows(fake):
    one = {"file": ["1.txt", "1.txt"], "row": [0, 1], "label": [5, 6]}
    two = {"file": ["2.txt"], "row": [0], "label": [7]}
    three = {"file": ["2.txt"], "row": [1], "label": [8]}
    table = ran(fake, left(one), left(two, three)).table()
    assert table.column_names == ["key", "file", "row", "label"]
    assert table["key"].to_pylist() == ["a", "a", "b", "b"]
    assert table["label"].to_pylist() == [5, 6, 7, 8]


def test_rows_that_are_not_done_are_named_and_left_out_only_where_that_is_wanted(fake):
    grid = ran(
        fake,
        left({"label": [1]}),
        Answer(status="Failed", reason="AlgorithmError: ValueError: no image, exit code: 1"),
    )
    with pytest.raises(InvalidRequest, match=r"b \(failed\).*partial"):
        grid.table()
    assert grid.table(partial=True).to_pydict() == {"key": ["a"], "label": [1]}


def test_one_file_has_them_all_and_a_failure_leaves_the_old_one(fake, tmp_path):
    path = tmp_path / "out" / "all.parquet"
    grid = ran(fake, left({"label": [1, 2]}), left({"label": [3]}), name="whole")
    assert grid.write_table(path) == 3
    assert pq.read_table(path).to_pydict() == {"key": ["a", "a", "b"], "label": [1, 2, 3]}
    with pytest.raises(InvalidRequest, match=r"'b'.*label \(string\)"):
        ran(fake, left({"label": [1]}), left({"label": ["cat"]}), name="mixed").write_table(path)
    assert pq.read_table(path).num_rows == 3
    assert [item.name for item in path.parent.iterdir()] == ["all.parquet"]


def test_numbers_of_another_type_join_if_their_values_stay(fake):
    empty = {"label": pa.array([None], pa.float64())}
    grid = ran(fake, left({"label": [1]}), left({"label": [2.0]}), left(empty), name="numbers")
    assert grid.table()["label"].to_pylist() == [1, 2, None]
    with pytest.raises(InvalidRequest, match=r"'b'.*label \(double\)"):
        ran(fake, left({"label": [1]}), left({"label": [2.5]}), name="fractions").table()


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "grid.db")
    store.make("drives", rules=Rules(), now=0.0)
    yield store
    store.database.close()


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "campaigns.db"
    sqlite3.connect(path).close()
    database = database_of(path)
    make_table(database)
    return database


def path_of_database(database):
    return database.name.removeprefix("sqlite:///")


def rows(database):
    with contextlib.closing(sqlite3.connect(path_of_database(database))) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {TABLE} ORDER BY task")]


def add(store, number):
    store.add([Task(key=f"k{row:04}", position=row) for row in range(number)])


def move(store, keys, was, state, **changes):
    with store.database.transaction("test", fenced=False):
        for key in keys:
            store.move_task(key, was, state, 1.0, **changes)


def attempt(key, number=1, **changes):
    fields = {
        "task": key, "number": number, "name": f"g-{key}-a{number}", "region": "us-east-1", "count": 2,
        "instance_type": "ml.g5.xlarge", "state": AttemptState.ENDED, "sent_s": 1.0, "started_s": 5.0, "ended_s": 95.0,
        "billable_s": 90.0, "usd_per_hour": 2.0, "ending": "OK",
    }  # fmt: skip
    return Attempt(**fields | changes)


def insert(store, *attempts):
    with store.database.transaction("test", fenced=False):
        for each in attempts:
            store.insert(each)


def test_a_row_that_is_tried_again_is_written_back_as_waiting(store, database):
    add(store, 1)
    move(store, ["k0000"], TaskState.WAITING, TaskState.FAILED)
    write_back(store, database)
    store.requeue(RETRYABLE_STATES, 2.0)
    assert write_back(store, database) == 1
    assert [row["state"] for row in rows(database)] == ["waiting"]


def test_a_done_row_has_its_job_its_time_and_all_that_it_cost(store, database):
    add(store, 1)
    insert(
        store,
        attempt("k0000", ending="USER", billable_s=30.0),
        attempt("k0000", 2, region="eu-west-1"),
    )
    move(store, ["k0000"], TaskState.WAITING, TaskState.DONE)
    assert write_back(store, database) == 1
    (row,) = rows(database)
    assert row == {
        "grid": "drives", "task": "k0000", "state": "done", "region": "eu-west-1", "instance_type": "ml.g5.xlarge",
        "job": "g-k0000-a2", "attempts": 2, "started_s": 5.0, "ended_s": 95.0, "billable_s": 120.0,
        "usd": pytest.approx(2.0 * 2 * 120 / 3600), "reason": "",
    }  # fmt: skip
    assert set(row) == set(COLUMNS)


class CountsChanges:
    """A database whose driver says how many rows are others now, as MySQL's do, and not how many were meant."""

    def __init__(self, database):
        self.database = database

    @contextlib.contextmanager
    def transaction(self):
        with contextlib.closing(sqlite3.connect(path_of_database(self.database))) as connection:

            def execute(text, params):
                before = set(connection.execute(f"SELECT * FROM {TABLE}"))
                connection.execute(text, params)
                return len(set(connection.execute(f"SELECT * FROM {TABLE}")) - before)

            yield execute
            connection.commit()


def test_what_has_been_written_before_is_written_again_where_only_changes_are_counted(
    store, database
):
    add(store, 3)
    move(store, ["k0000", "k0001"], TaskState.WAITING, TaskState.PLACED)
    noted = store.unwritten()
    database_of_mysql = CountsChanges(database)
    write_back(store, database_of_mysql)
    before = rows(database)
    # The process was killed before it took the notes away.
    store.database.connection.executemany(
        "INSERT INTO outbox VALUES (?, ?)", [(task.task.key, n) for n, task in noted]
    )
    move(store, ["k0002"], TaskState.WAITING, TaskState.PLACED)
    assert write_back(store, database_of_mysql) == 3
    assert rows(database)[:2] == before
    assert [row["state"] for row in rows(database)] == ["placed"] * 3


class Flaky:
    """A database that is away half of the time: before anything was written, or after it was, with the answer lost."""

    def __init__(self, database, seed):
        self.database = database
        self.chance = random.Random(seed)
        self.away = 0

    @contextlib.contextmanager
    def transaction(self):
        fate = self.chance.random()
        if fate < 0.3:
            self.away += 1
            raise ServiceError("away", is_transient=True)
        with self.database.transaction() as execute:
            yield execute
        if fate < 0.6:
            self.away += 1
            raise ServiceError("the answer was lost", is_transient=True)


def test_of_a_thousand_rows_none_is_missing_and_none_is_there_twice_though_the_database_is_away(
    store, database
):
    add(store, 1000)
    flaky = Flaky(database, seed=4)
    keys = [f"k{row:04}" for row in range(1000)]
    states = ((TaskState.WAITING, TaskState.PLACED), (TaskState.PLACED, TaskState.DONE))
    for was, state in states:
        for begin in range(0, 1000, 100):
            move(store, keys[begin : begin + 100], was, state)
            with contextlib.suppress(ServiceError):
                write_back(store, flaky)
    while store.unwritten():
        with contextlib.suppress(ServiceError):
            write_back(store, flaky)
    written = rows(database)
    assert flaky.away > 5
    assert [row["task"] for row in written] == keys
    assert {row["state"] for row in written} == {"done"}


def test_two_grids_share_a_table_and_a_long_reason_is_cut(store, database, tmp_path):
    other = Store(tmp_path / "other.db")
    other.make("others", rules=Rules(), now=0.0)
    for each in (store, other):
        add(each, 1)
        move(each, ["k0000"], TaskState.WAITING, TaskState.FAILED, reason="x" * 5000)
        write_back(each, database)
    other.database.close()
    assert [(row["grid"], len(row["reason"])) for row in rows(database)] == [
        ("drives", 1024),
        ("others", 1024),
    ]


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

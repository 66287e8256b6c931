"""The results of rows, each by itself and as one table."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.core.client.service import Service
from raysm.core.protocol.result import MANIFEST, Manifest, ResultFile
from raysm.core.request import Local
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.row_results import row_result
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store
from raysm.testing import Answer, FakeSageMaker
from tests.support.homes import in_home


def test_a_row_that_is_not_done_has_no_result_and_the_error_says_why(tmp_path):
    service = Service(Local(home=str(tmp_path / "home")))
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0.0)
    store.add([Row(key=key, position=place) for place, key in enumerate("bc")])
    with store.database.transaction("test", fenced=False):
        store.rows.move("b", RowState.WAITING, RowState.FAILED, 1.0, reason="it is broken")
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

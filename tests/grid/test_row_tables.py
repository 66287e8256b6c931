"""The tables of all rows as one: with their rows' keys, in the order of the source, and nothing left out unsaid."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.contract.result import MANIFEST, Manifest, ResultFile
from raysm.errors import InvalidRequest
from raysm.grid.row import write_tables
from raysm.request.codec import to_json
from raysm.testing import Answer, FakeSageMaker
from tests.support.homes import in_home


def predict(batch):
    return {"label": [len(text) for text in batch["text"]]}


def left(*parts, job="predict"):
    """Return what a batch inference leaves whose parts have these columns."""
    files, stated = {}, []
    for number, columns in enumerate(parts):
        name, content = f"predictions/part-{number:06}.parquet", io.BytesIO()
        table = pa.table(columns)
        pq.write_table(table, content)
        files[name] = content.getvalue()
        stated.append(
            ResultFile(
                name=name, shape=(table.num_rows,), bytes=len(files[name]), sha256="0", how_to_read="", units=("rows",)
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
    grid = raysm.Grid(raysm.Batch(predict, batch_size=8), rows=rows, on=fake, rules=rules, **options)
    grid.run()
    return grid


def test_predictions_of_all_rows_are_one_table_beside_the_keys_in_the_order_of_the_rows(fake):
    one = {"file": ["1.txt", "1.txt"], "row": [0, 1], "label": [5, 6]}
    two, three = {"file": ["2.txt"], "row": [0], "label": [7]}, {"file": ["2.txt"], "row": [1], "label": [8]}
    table = ran(fake, left(one), left(two, three)).table()
    assert table.column_names == ["key", "file", "row", "label"]
    assert table["key"].to_pylist() == ["a", "a", "b", "b"]
    assert table["label"].to_pylist() == [5, 6, 7, 8]


def test_a_row_without_records_adds_none(fake):
    grid = ran(fake, left(), left({"label": [1]}))
    assert grid.table().to_pydict() == {"key": ["b"], "label": [1]}


def test_rows_that_are_not_done_are_named_and_left_out_only_where_that_is_wanted(fake):
    grid = ran(
        fake, left({"label": [1]}), Answer(status="Failed", reason="AlgorithmError: ValueError: no image, exit code: 1")
    )
    with pytest.raises(InvalidRequest, match=r"1 of 2 rows are not done: b \(failed\).* partial"):
        grid.table()
    assert grid.table(partial=True).to_pydict() == {"key": ["a"], "label": [1]}


def test_tables_that_are_not_alike_are_not_made_one(fake):
    grid = ran(fake, left({"label": [1]}), left({"label": ["cat"]}))
    with pytest.raises(InvalidRequest, match=r"row 'b' has the columns key \(string\), label \(string\), and .*int64"):
        grid.table()


def test_a_column_of_the_keys_name_is_not_hidden(fake):
    grid = ran(fake, left({"key": ["x"], "label": [1]}))
    with pytest.raises(InvalidRequest, match="has a column 'key' of its own"):
        grid.table()
    assert grid.table(column="shard").to_pydict() == {"shard": ["a"], "key": ["x"], "label": [1]}


def test_what_is_no_table_is_said_to_be_none(fake, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    grid = raysm.Grid(tmp_path / "train.py", rows=[{"key": "a"}], on=fake)
    grid.run()
    with pytest.raises(InvalidRequest, match="the row 'a' has left .* and no table"):
        grid.table()


def test_one_file_has_them_all_and_a_failure_leaves_the_old_one(fake, tmp_path):
    path = tmp_path / "out" / "all.parquet"
    grid = ran(fake, left({"label": [1, 2]}), left({"label": [3]}), name="whole")
    assert grid.write_table(path) == 3
    assert pq.read_table(path).to_pydict() == {"key": ["a", "a", "b"], "label": [1, 2, 3]}
    with pytest.raises(InvalidRequest, match="has the columns"):
        ran(fake, left({"label": [1]}), left({"label": ["cat"]}), name="mixed").write_table(path)
    assert pq.read_table(path).num_rows == 3
    assert [item.name for item in path.parent.iterdir()] == ["all.parquet"]


def test_where_there_are_no_records_there_is_no_file(fake, tmp_path):
    with pytest.raises(InvalidRequest, match="there is nothing to write"):
        write_tables(iter(()), tmp_path / "none.parquet")
    with pytest.raises(InvalidRequest, match="have left no records"):
        ran(fake, left()).table()
    assert not (tmp_path / "none.parquet").exists()

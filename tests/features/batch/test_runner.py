"""Batch inference, and the files it reads: parts in the order of the input, each once, whoever made them."""

import gzip
import hashlib
import json
import os
import pickle
from datetime import datetime
from decimal import Decimal

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import raysm
from raysm.core.protocol.events import Progress
from raysm.core.protocol.paths import Paths
from raysm.errors import BlockFailed, InvalidInput, InvalidRequest
from raysm.features.batch.cluster.columns import MAX_KEYS
from raysm.features.batch.cluster.files import Images, Npy, Text, WholeFiles
from raysm.features.batch.cluster.formats import Span, check_inputs, infer_format
from raysm.features.batch.cluster.pieces import Piece
from raysm.features.batch.cluster.predict import (
    PART_FORMAT,
    Part,
    load_predictor,
    to_array,
    to_parquet,
    to_table,
)
from raysm.features.batch.cluster.tables import Parquet
from raysm.features.batch.request import BatchInference
from raysm.features.batch.runner import Gathered, open_record
from tests.support.batches import run
from tests.support.pages import outputs


class Lengths:
    def __init__(self, marks=None):
        self.marks = marks

    def __call__(self, batch):
        texts = batch["text"]
        if self.marks is not None:
            for row in batch["row"]:
                with open(f"{self.marks}/{batch['file'][0]}-{row}", "a") as mark:
                    mark.write("x")
        return {
            "length": np.array([len(text) for text in texts]),
            "upper": [text.upper() for text in texts],
        }


def fails_at(batch, marks, word):
    """Fail at a word until its file of marks is there."""
    if word in batch["text"] and not os.path.exists(f"{marks}/mended"):
        raise ValueError(f"no {word} here")
    for row in batch["row"]:
        with open(f"{marks}/{row}", "a") as mark:
            mark.write("x")
    return {"y": np.ones(len(batch["text"]))}


@pytest.fixture
def words(base):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("".join(f"word {number}\n" for number in range(10)))
    (folder / "b.txt").write_text("last\n")
    (folder / "empty.txt").write_text("")
    return base


def test_every_record_is_predicted_once_and_stands_in_its_place(words, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    batch = raysm.Batch(Lengths, batch_size=2, piece_rows=4, arguments={"marks": str(marks)})
    outcome, events = run(batch, words, tmp_path / "model")
    assert (outcome.rows, outcome.resumed) == (11, 0)
    assert [(file.name, file.shape) for file in outcome.files] == [
        ("predictions/part-000000.parquet", (4,)),
        ("predictions/part-000001.parquet", (4,)),
        ("predictions/part-000002.parquet", (2,)),
        ("predictions/part-000003.parquet", (1,)),
    ]
    table = pa.concat_tables(
        [pq.read_table(tmp_path / "model" / file.name) for file in outcome.files]
    )
    assert table["file"].to_pylist() == ["a.txt"] * 10 + ["b.txt"]
    assert table["row"].to_pylist() == [*range(10), 0]
    assert table["upper"].to_pylist()[-1] == "LAST"
    assert [mark.read_text() for mark in marks.iterdir()] == ["x"] * 11
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert (last.done, last.total) == (4, 4)


def test_a_run_that_failed_goes_on_with_what_it_had_finished(words, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    batch = raysm.Batch(
        fails_at,
        batch_size=2,
        piece_rows=2,
        arguments={"marks": str(marks), "word": "word 9"},
        read="text",
        cpus=2,
    )
    with pytest.raises(BlockFailed, match="part 4: a.txt, rows 8 to 9(?s:.)*no word 9 here"):
        run(batch, words, tmp_path / "model", records=tmp_path / "records")
    before = {mark.name: mark.read_text() for mark in marks.iterdir()}
    (marks / "mended").touch()
    outcome, events = run(batch, words, tmp_path / "model", records=tmp_path / "records")
    assert outcome.rows == 11
    assert outcome.resumed >= 1
    # Rates count only what this run predicted.
    assert outcome.predicted <= 11 - (2 * outcome.resumed - 1)
    assert (
        next(event.done for event in events if getattr(event, "phase", "") == "predict")
        == outcome.resumed
    )
    # Four pieces of two records are unfinished at a time, one of which failed: no record of another
    # one is predicted again. Each file has a row 0.
    again = [
        name for name, text in before.items() if name != "0" and (marks / name).read_text() != text
    ]
    assert len(again) <= 3 * 2
    # Nothing is left of it: the result has it all.
    assert not (tmp_path / "records").exists()


class RunsCode:
    """A pickle of it makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def one_part(tmp_path):
    """A piece, and the record of a batch of this piece alone."""
    pickled = tmp_path / "function.pkl"
    pickled.write_bytes(b"as it was pickled")
    workload = BatchInference(name="p", python="3.11", batch_size=2)
    piece = Piece(number=0, span=Span(files=("a.png",), rows=1))
    return piece, open_record(tmp_path / "records", workload, [piece], pickled, None)


def planted(record, piece, content, **fields):
    """Write a part as someone does who may write to the checkpoints, and knows how raysm names and marks parts."""
    line = {
        "raysm_block": 1,
        "key": record.key,
        "block": hashlib.sha256(str(piece).encode()).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
        **fields,
    }
    text = json.dumps(line).encode() + b"\n"
    record.path(piece).parent.mkdir(parents=True)
    record.path(piece).write_bytes(
        text[:-1].ljust(-len(text) % 64 + len(text) - 1) + b"\n" + content
    )


def test_a_part_of_an_earlier_version_which_is_a_pickle_is_predicted_again(one_part, tmp_path):
    piece, record = one_part
    planted(record, piece, pickle.dumps(RunsCode(tmp_path / "run")))
    assert piece not in record
    assert record.outdated == 1
    assert not (tmp_path / "run").exists()


def test_a_pickle_in_the_place_of_a_part_runs_nothing(one_part, tmp_path):
    piece, record = one_part
    planted(record, piece, pickle.dumps(RunsCode(tmp_path / "run")), format=PART_FORMAT)
    assert piece in record
    with pytest.raises(InvalidInput, match="part 0: a.png"):
        record.load(piece)
    assert not (tmp_path / "run").exists()


def test_a_part_is_read_as_it_was_saved_whatever_its_types(one_part):
    piece, record = one_part
    table = pa.table(
        {
            "seconds": pa.array([datetime(2026, 1, 1)], pa.timestamp("s")),
            "none": pa.nulls(1),
            "choice": pa.array(["a"]).dictionary_encode(),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2, 3), np.float32)),
        }
    )
    part = Part(rows=1, schema=table.schema, content=to_parquet(table))
    record.save(piece, part)
    assert record.load(piece) == part
    record.save(piece, Part(rows=0, schema=None, content=b""))
    assert record.load(piece) == Part(rows=0, schema=None, content=b"")


def test_parts_of_other_files_are_not_gone_on_with_though_they_are_as_many_and_begin_alike(
    tmp_path,
):
    def recorded(*files):
        piece = Piece(number=0, span=Span(files=files, rows=len(files)))
        return piece, open_record(tmp_path / "records", workload, [piece], pickled, None)

    workload, pickled = (
        BatchInference(name="p", python="3.11", batch_size=2),
        tmp_path / "function.pkl",
    )
    pickled.write_bytes(b"as it was pickled")
    piece, record = recorded("a.png", "b.png")
    record.save(piece, Part(rows=2, schema=None, content=b""))
    again, record = recorded("a.png", "b.png")
    assert again in record
    other, record = recorded("a.png", "c.png")
    assert other not in record


def test_parts_of_other_code_or_another_environment_are_predicted_again(tmp_path):
    workload = BatchInference(name="p", python="3.11", batch_size=2)
    pickled = tmp_path / "function.pkl"
    pickled.write_bytes(b"as it was pickled")
    piece = Piece(number=0, span=Span(files=("a.png",), rows=1))

    def record(code):
        return open_record(tmp_path / "records", workload, [piece], pickled, None, code)

    record("first").save(piece, Part(rows=0, schema=None, content=b""))
    assert (piece in record("first"), record("first").dropped) == (True, 0)
    other = record("second")
    assert (piece in other, other.dropped) == (False, 1)


def part_of(**columns):
    table = pa.table(columns)
    return Part(rows=len(table), schema=table.schema, content=to_parquet(table))


@pytest.fixture
def gathered(tmp_path):
    pieces = [Piece(number=number, span=Span(files=(f"{number}.txt",))) for number in range(3)]
    gathered = Gathered(tmp_path, pieces, "model", lambda event: None)

    def take(*parts):
        for piece, part in zip(pieces, parts, strict=False):
            gathered.take(piece, part)
        return [pq.read_table(tmp_path / file.name) for file in gathered.files()]

    return take


WIDER = [
    pytest.param([1], [1.5], pa.float64(), [1.0, 1.5], id="numbers"),
    pytest.param([None], ["a"], pa.string(), [None, "a"], id="nothing yet"),
    pytest.param([[]], [[0.5]], pa.list_(pa.float64()), [[], [0.5]], id="empty lists"),
    pytest.param(
        [Decimal("1.5")],
        [Decimal("10.25")],
        pa.decimal128(4, 2),
        [Decimal("1.50"), Decimal("10.25")],
        id="decimals",
    ),
    pytest.param(
        [{"a": None}],
        [{"a": 1.5, "b": "x"}],
        pa.struct({"a": pa.float64(), "b": pa.string()}),
        [{"a": None, "b": None}, {"a": 1.5, "b": "x"}],
        id="mappings",
    ),
    pytest.param(
        [{}], [{"a": 1}], pa.struct({"a": pa.int64()}), [{"a": None}, {"a": 1}], id="no keys"
    ),
]


@pytest.mark.parametrize(("first", "then", "kind", "values"), WIDER)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_types_widen_over_parts(gathered, first, then, kind, values, is_reversed):
    parts = [part_of(y=to_array(first)), part_of(y=to_array(then))]
    tables = gathered(*parts[:: -1 if is_reversed else 1])
    assert all(table.schema.field("y").type.equals(kind) for table in tables)
    found = pa.concat_tables(tables)["y"].to_pylist()
    assert found == values[:: -1 if is_reversed else 1]


def test_values_without_a_common_type_are_named_with_their_parts(gathered):
    with pytest.raises(InvalidRequest) as raised:
        gathered(part_of(y=pa.nulls(1)), part_of(y=[7]), part_of(y=["seven"]))
    for word in ("'y'", "7 (int64)", "part 1", "'seven' (string)", "part 2"):
        assert word in str(raised.value)


def test_other_columns_in_a_later_part_are_named(gathered):
    with pytest.raises(InvalidRequest, match="y in part 0: 0.txt.* y, z in part 1: 1.txt"):
        gathered(part_of(y=[1]), part_of(y=[1], z=[2]))


def test_a_whole_number_that_no_float_equals_is_refused_as_soon_as_a_part_has_floats(gathered):
    with pytest.raises(InvalidRequest, match="part 0: 0.txt .*fraction"):
        gathered(part_of(y=[2**53 + 1]), part_of(y=[0.5]))


def test_mappings_with_many_keys_are_a_map_and_take_no_value_for_each_key(gathered):
    first = [{f"a{n}": n} for n in range(MAX_KEYS)]
    then = [{f"b{n}": n / 2, "none": None} for n in range(5000)]
    tables = gathered(part_of(y=to_array(first)), part_of(y=to_array(then)))
    kind = pa.map_(pa.string(), pa.float64())
    assert all(table.schema.field("y").type.equals(kind) for table in tables)
    assert tables[0]["y"].to_pylist() == [list(row.items()) for row in first]
    assert tables[1].nbytes < 500_000


def lengths_of_text(batch):
    return {"length": [len(text) for text in batch["when"]], "n": batch["n"] * 2}


def test_files_of_which_each_instance_has_a_share_have_one_type_too(base, tmp_path, capfd):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.csv").write_text(
            f"zip,when,n\n{'90210' if number else '00123'},soon,{number / 2:g}\n"
        )
    batch = raysm.Batch(lengths_of_text, batch_size=2, keep=["zip"])
    outcome, events = run(batch, base, tmp_path / "model", distribution="ShardedByS3Key", here=True)
    table = pa.concat_tables(
        [pq.read_table(tmp_path / "model" / file.name) for file in outcome.files]
    )
    assert table["n"].to_pylist() == [0, 1, 2]
    assert table["zip"].to_pylist() == ["00123", "90210", "90210"]
    assert capfd.readouterr().out.splitlines() == outputs("guides/batch.md")
    assert [
        event.done for event in events if isinstance(event, Progress) and event.phase == "scan"
    ][-1] == 3


def test_a_column_that_the_input_lacks_is_refused_before_anything_is_predicted(base, tmp_path):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("zip,n\n00123,1\n")
    with pytest.raises(InvalidRequest, match="types .*'zpi'.* zip, n"):
        run(
            raysm.Batch(lengths_of_text, batch_size=2, types={"zpi": "string"}),
            base,
            tmp_path / "model",
        )
    with pytest.raises(InvalidRequest, match="keep .*'zpi'.* file, row, zip, n"):
        run(raysm.Batch(lengths_of_text, batch_size=2, keep=["zpi"]), base, tmp_path / "model")


def as_they_are(batch):
    notes = batch["note"]
    return {"note_again": notes, "words": [[] if note is None else note.split() for note in notes]}


def test_predictions_have_one_type_though_none_of_a_batch_or_of_a_file_has_a_value(base, tmp_path):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    missing, present = '{"note": null}\n', '{"note": "two words"}\n'
    for name, lines in (
        ("a", missing * 4),
        ("b", missing * 2 + present),
        ("c", present + missing * 2),
    ):
        (folder / f"{name}.jsonl").write_text(lines)
    outcome, _ = run(raysm.Batch(as_they_are, batch_size=2), base, tmp_path / "model", here=True)
    tables = [pq.read_table(tmp_path / "model" / file.name) for file in outcome.files]
    assert {str(table.schema) for table in tables} == {str(tables[0].schema)}
    table = pa.concat_tables(tables)
    assert table["note_again"].to_pylist() == [None] * 6 + ["two words"] * 2 + [None] * 2
    assert table["words"].to_pylist() == [[]] * 6 + [["two", "words"]] * 2 + [[]] * 2
    for file, rows in zip(outcome.files, (4, 3, 3), strict=True):
        content = (tmp_path / "model" / file.name).read_bytes()
        assert (file.shape, file.bytes) == ((rows,), len(content))
        assert file.sha256 == hashlib.sha256(content).hexdigest()


BATCH = {
    "file": np.array(["a", "b"], dtype=object),
    "x": np.array([1.0, 2.0]),
    "id": np.array([7, 8]),
}


class Counting:
    made = 0

    def __init__(self, by):
        type(self).made += 1
        self.by, self.number = by, type(self).made

    def __call__(self, batch):
        return {"y": batch["x"] * self.by, "made": np.full(len(batch["x"]), self.number)}


def times(batch, factor):
    return {"y": batch["x"] * factor}


def pickled(folder, *call):
    path = folder / "function.pkl"
    path.write_bytes(cloudpickle.dumps(call))
    return path


def table(predicted, keep=()):
    return to_table(BATCH, predicted, ("file",), keep, "model")


def test_a_class_is_made_once_in_a_process_and_a_function_called_with_its_arguments(tmp_path):
    path = pickled(tmp_path, Counting, (), {"by": 3})
    numbers = [load_predictor(path, "model")(dict(BATCH))["made"][0] for _ in range(3)]
    assert len(set(numbers)) == 1
    (tmp_path / "other").mkdir()
    function = load_predictor(pickled(tmp_path / "other", times, (), {"factor": 5}), "model")
    assert function(dict(BATCH))["y"].tolist() == [5.0, 10.0]


def test_predictions_stand_beside_the_keys_and_what_is_kept():
    found = table({"y": [0.1, 0.2], "label": ["cat", "dog"]}, keep=("id",))
    assert found.to_pydict() == {
        "file": ["a", "b"],
        "id": [7, 8],
        "y": [0.1, 0.2],
        "label": ["cat", "dog"],
    }


KEPT = [
    pytest.param([7, None, 2**53 + 1], pa.int64(), pa.int64(), id="whole numbers"),
    pytest.param([1, 2, None], pa.uint8(), pa.uint8(), id="small ones"),
    pytest.param(["a", "b", None], pa.string(), pa.string(), id="texts"),
    pytest.param(["a", "b", None], pa.large_string(), pa.string(), id="large texts"),
    pytest.param(
        ["a", "b", None], pa.dictionary(pa.int32(), pa.string()), pa.string(), id="categories"
    ),
    pytest.param([True, False, None], pa.bool_(), pa.bool_(), id="truth values"),
    pytest.param(
        [datetime(2026, 1, 1), datetime(2026, 1, 2), None],
        pa.timestamp("ms"),
        pa.timestamp("ms"),
        id="times",
    ),
]


@pytest.mark.parametrize(("values", "of_file", "written"), KEPT)
def test_a_kept_column_has_what_is_missing_and_is_of_one_type_in_all_batches(
    tmp_path, values, of_file, written
):
    pq.write_table(pa.table({"id": pa.array(values, of_file)}), tmp_path / "a.parquet")
    columns = Parquet().unify([Parquet().scan(tmp_path, "a.parquet", {})], ())
    batches = Parquet(columns).batches(tmp_path, Span(files=("a.parquet",)), 2, 1)
    tables = [
        to_table(batch, {"y": np.zeros(len(batch["id"]))}, ("file", "row"), ("id",), "model")
        for batch in batches
    ]
    found = pa.concat_tables(tables)
    assert (found.schema.field("id").type, found.column("id").to_pylist()) == (written, values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.zeros((2, 3), dtype=np.float32), pa.list_(pa.float32(), 3)),
        (np.zeros((2, 3, 4)), pa.fixed_shape_tensor(pa.float64(), (3, 4))),
        (torch.zeros(2, 3, requires_grad=True), pa.list_(pa.float32(), 3)),
        # NumPy has neither type; float32 holds all of their values.
        (torch.zeros(2, 3, dtype=torch.bfloat16), pa.list_(pa.float32(), 3)),
        (torch.zeros(2, dtype=torch.float8_e4m3fn), pa.float32()),
        (
            [torch.tensor(1.5, dtype=torch.bfloat16), torch.tensor(2.0, dtype=torch.bfloat16)],
            pa.float32(),
        ),
        ([torch.zeros(3, requires_grad=True), torch.zeros(3)], pa.list_(pa.float32(), 3)),
        (np.array(["a", "b"]), pa.string()),
        ([{"a": 1}, {"a": 2}], pa.struct({"a": pa.int64()})),
        ([[1], [2, 3]], pa.list_(pa.int64())),
        (np.array([1, 2], dtype=np.float16), pa.float16()),
    ],
)
def test_what_a_predictor_returns_has_the_type_that_readers_expect(values, kind):
    assert table({"y": values}).schema.field("y").type == kind


def test_numbers_that_numpy_lacks_keep_their_values():
    values = torch.tensor([[1.5, -0.015625], [3e38, float("inf")]], dtype=torch.bfloat16)
    assert table({"y": values}).column("y").to_pylist() == values.float().tolist()


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (np.zeros(2), "ndarray"),
        ({}, "predictions by column"),
        ({"y": [1.0]}, " 1 predictions .*'y' .* 2 records"),
        ({"y": 1.0}, "one value .*'y'"),
        ({"file": ["x", "y"]}, "'file'"),
        ({"y": [1, "a"]}, "'y' of model .*Parquet"),
        ({"y": torch.zeros(2).to_sparse()}, "model returned a tensor without plain numbers in 'y'"),
        (
            {"y": torch.zeros(2, device="meta")},
            "model returned a tensor without plain numbers in 'y'",
        ),
    ],
)
def test_what_is_no_prediction_for_each_record_is_refused(predicted, message):
    with pytest.raises(InvalidRequest, match=message):
        table(predicted)


def read(format, folder, files, batch_size=2):
    return [
        batch
        for span in format.split(folder, files, 4)
        for batch in format.batches(folder, span, batch_size, threads=2)
    ]


def test_bytes_come_beside_their_files_in_order(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 2)
    batches = read(WholeFiles(), tmp_path, ["a", "b", "c"])
    assert [batch["file"].tolist() for batch in batches] == [["a", "b"], ["c"]]
    assert [batch["bytes"].tolist() for batch in batches] == [[b"aa", b"bb"], [b"cc"]]


def test_an_image_that_is_broken_in_its_middle_is_named(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    # The second piece of its pixels is none that there is.
    first, second, rest = (tmp_path / "a.png").read_bytes().split(b"IDAT", 2)
    (tmp_path / "broken.png").write_bytes(b"IDAT".join((first, second)) + bytes(4) + rest)
    with pytest.raises(InvalidInput, match=r"broken\.png .*broken PNG file"):
        read(Images(), tmp_path, ["a.png", "broken.png"])


def test_images_of_several_sizes_are_an_array_of_arrays_in_colour(tmp_path):
    Image.fromarray(np.zeros((4, 6, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.zeros((5, 6, 4), dtype=np.uint8)).save(tmp_path / "b.png")
    (batch,) = read(Images(), tmp_path, ["a.png", "b.png"])
    assert [image.shape for image in batch["image"]] == [(4, 6, 3), (5, 6, 3)]


@pytest.mark.parametrize(
    ("mode", "shape"),
    [("1", (3, 2)), ("L", (3, 2)), ("P", (3, 2, 3)), ("RGBA", (3, 2, 3)), ("CMYK", (3, 2, 3))],
)
def test_a_picture_comes_as_one_sees_it(tmp_path, mode, shape):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.new("RGB", (2, 3), (255, 255, 255)).convert(mode).save(path)
    pixels = Images().decode(path)
    assert (pixels.shape, pixels.dtype, int(pixels.max())) == (shape, np.uint8, 255)


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("a.png", np.array([[0, 255], [256, 65_535]], np.uint16)),
        ("a.tif", np.array([[-1, 256], [70_000, 2**31 - 1]], np.int32)),
        ("a.tif", np.array([[-0.5, 0.25], [1.0, 1e6]], np.float32)),
    ],
)
def test_a_grey_picture_of_more_than_eight_bits_keeps_them(tmp_path, name, pixels):
    Image.fromarray(pixels).save(tmp_path / name)
    decoded = Images().decode(tmp_path / name)
    assert (decoded.dtype, decoded.tolist()) == (pixels.dtype, pixels.tolist())


LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"])),
    min_size=1,
    max_size=20,
)


def read_lines(folder, files, rows, batch_size=3):
    spans = Text().split(folder, files, rows)
    return [batch for span in spans for batch in Text().batches(folder, span, batch_size, 1)]


@given(
    lines=LINES, rows=st.integers(1, 8), ends=st.sampled_from(["\n", "\r\n"]), last=st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_every_line_comes_once_with_its_number_wherever_it_is_cut(
    tmp_path_factory, lines, rows, ends, last
):
    folder = tmp_path_factory.mktemp("text")
    # A file that ends without a newline has a last line all the same, unless that is empty.
    text = ends.join(lines) + (ends if last or not lines[-1] else "")
    (folder / "a.txt").write_bytes(text.encode())
    batches = read_lines(folder, ["a.txt"], rows)
    assert [line for batch in batches for line in batch["text"]] == lines
    assert [row for batch in batches for row in batch["row"].tolist()] == list(range(len(lines)))
    assert {name for batch in batches for name in batch["file"]} == {"a.txt"}


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    for name, text in {"a.txt": "one\ntwo\n", "b.txt": "three\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress("four\n".encode("utf-8-sig")))
    batches = read_lines(tmp_path, ["a.txt", "b.txt", "c.txt.gz"], 1)
    assert [line for batch in batches for line in batch["text"]] == ["one", "two", "three", "four"]


def test_a_compressed_file_is_one_span(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    assert len(Text().split(tmp_path, ["a.txt.gz"], 1)) == 1
    batches = read_lines(tmp_path, ["a.txt.gz"], 1, 2)
    assert [line for batch in batches for line in batch["text"]] == ["one", "two", "three"]


def test_a_line_that_is_no_text_is_named_by_its_rows(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\n")
    with pytest.raises(InvalidInput, match="rows 0 to 1 .*UTF-8"):
        read_lines(tmp_path, ["a.txt"], 5)


def test_rows_of_any_shape_come_with_their_numbers(tmp_path):
    array = np.arange(5 * 2 * 3).reshape(5, 2, 3)
    np.save(tmp_path / "a.npy", array)
    spans = Npy().split(tmp_path, ["a.npy"], 3)
    assert [(span.start, span.stop, span.rows) for span in spans] == [(0, 3, 3), (3, 5, 2)]
    batches = [batch for span in spans for batch in Npy().batches(tmp_path, span, 2, 1)]
    assert [len(batch["values"]) for batch in batches] == [2, 1, 2]
    np.testing.assert_array_equal(np.concatenate([batch["values"] for batch in batches]), array)
    assert [row for batch in batches for row in batch["row"]] == list(range(5))
    # A predictor may work in place; the file stays as it was.
    batches[0]["values"][:] = -1
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize(
    ("array", "message"), [(np.array(3.0), "holds one number"), (np.array([{}]), "cannot be read")]
)
def test_what_has_no_rows_is_named(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InvalidInput, match=message):
        Npy().split(tmp_path, ["a.npy"], 3)


@pytest.mark.parametrize(
    ("files", "format"),
    [
        (["a.PNG", "deep/b.jpeg"], "images"),
        (["a.txt", "b.txt.gz"], "text"),
        (["a.tsv.gz"], "csv"),
        (["a.ndjson"], "jsonl"),
        (["a.parquet"], "parquet"),
        (["a.npy"], "npy"),
    ],
)
def test_a_format_goes_by_the_names(files, format):
    assert infer_format(files, "data") == format


@pytest.mark.parametrize("files", [["a.png", "b.csv"], ["a.png", "model.bin"], ["README"]])
def test_files_of_several_or_unknown_formats_are_refused_with_what_to_say(files):
    with pytest.raises(InvalidInput, match="'data' .*one known format .*read='files'"):
        infer_format(files, "data")


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2} | fields)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="'data', has no files"):
        check_inputs(asked(), {"data": tmp_path})
    (tmp_path / "a.bin").write_text("1\n")
    with pytest.raises(InvalidInput, match="one known format"):
        check_inputs(asked(), {"data": tmp_path})
    check_inputs(asked(read="files"), {"data": tmp_path})

"""Batch inference on one small Ray: parts in the order of the input, each once, the same whoever made them."""

import hashlib
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.contract.events import Progress
from raysm.contract.paths import Paths
from raysm.errors import BlockFailed, InvalidRequest
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import Span
from raysm.workloads.batch.pieces import Piece
from raysm.workloads.batch.predict import Part, parquet_of
from raysm.workloads.batch.run import Gathered, record_of
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
        return {"length": np.array([len(text) for text in texts]), "upper": [text.upper() for text in texts]}


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
    table = pa.concat_tables([pq.read_table(tmp_path / "model" / file.name) for file in outcome.files])
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
        fails_at, batch_size=2, piece_rows=2, arguments={"marks": str(marks), "word": "word 9"}, read="text", cpus=2
    )
    with pytest.raises(BlockFailed, match=r"part 4: a.txt, rows 8 to 9(?s:.)*ValueError: no word 9 here"):
        run(batch, words, tmp_path / "model", records=tmp_path / "records")
    before = {mark.name: mark.read_text() for mark in marks.iterdir()}
    (marks / "mended").touch()
    outcome, _ = run(batch, words, tmp_path / "model", records=tmp_path / "records")
    assert outcome.rows == 11
    assert outcome.resumed >= 1
    # Four pieces of two records are unfinished at a time, one of which failed: no record of another one is predicted
    # again. Each file has a row 0.
    again = [name for name, text in before.items() if name != "0" and (marks / name).read_text() != text]
    assert len(again) <= 3 * 2
    # Nothing is left of it: the result has it all.
    assert not (tmp_path / "records").exists()


def test_parts_of_other_files_are_not_gone_on_with_though_they_are_as_many_and_begin_alike(tmp_path):
    def recorded(*files):
        piece = Piece(number=0, span=Span(files=files, rows=len(files)))
        return piece, record_of(tmp_path / "records", workload, [piece], pickled, None)

    workload, pickled = BatchInference(name="p", python="3.11", batch_size=2), tmp_path / "function.pkl"
    pickled.write_bytes(b"as it was pickled")
    piece, record = recorded("a.png", "b.png")
    record.save(piece, Part(rows=2, schema=None, content=b""))
    again, record = recorded("a.png", "b.png")
    assert again in record
    other, record = recorded("a.png", "c.png")
    assert other not in record


def part_of(**columns):
    table = pa.table(columns)
    return Part(rows=len(table), schema=table.schema, content=parquet_of(table))


def test_other_columns_for_some_records_are_named_with_both_parts(tmp_path):
    first, second = (Piece(number=number, span=Span(files=(f"{number}.txt",))) for number in range(2))
    gathered = Gathered(tmp_path, [first, second], lambda event: None)
    gathered.take(first, part_of(y=[1]))
    with pytest.raises(InvalidRequest, match=r"part 1: 1.txt have other columns than those of part 0(?s:.)*not y: int"):
        gathered.take(second, part_of(y=[1.5]))


def lengths_of_text(batch):
    return {"length": [len(text) for text in batch["when"]], "n": batch["n"] * 2}


def test_files_of_which_each_instance_has_a_share_have_one_type_too(base, tmp_path, capfd):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.csv").write_text(f"zip,when,n\n{'90210' if number else '00123'},soon,{number / 2:g}\n")
    batch = raysm.Batch(lengths_of_text, batch_size=2, keep=["zip"])
    outcome, events = run(batch, base, tmp_path / "model", distribution="ShardedByS3Key", here=True)
    table = pa.concat_tables([pq.read_table(tmp_path / "model" / file.name) for file in outcome.files])
    assert table["n"].to_pylist() == [0, 1, 2]
    assert table["zip"].to_pylist() == ["00123", "90210", "90210"]
    assert capfd.readouterr().out.splitlines() == outputs("how-to/predict-in-batches.md")
    assert [event.done for event in events if isinstance(event, Progress) and event.phase == "scan"][-1] == 3


def test_a_column_that_the_input_lacks_is_refused_before_anything_is_predicted(base, tmp_path):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("zip,n\n00123,1\n")
    with pytest.raises(InvalidRequest, match="types names the column 'zpi'; the input has zip, n"):
        run(raysm.Batch(lengths_of_text, batch_size=2, types={"zpi": "string"}), base, tmp_path / "model")
    with pytest.raises(InvalidRequest, match="keep names the column 'zpi'; the input has file, row, zip, n"):
        run(raysm.Batch(lengths_of_text, batch_size=2, keep=["zpi"]), base, tmp_path / "model")


def as_they_are(batch):
    notes = batch["note"]
    return {"note_again": notes, "words": [[] if note is None else note.split() for note in notes]}


def test_predictions_have_one_type_though_none_of_a_batch_or_of_a_file_has_a_value(base, tmp_path):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    missing, present = '{"note": null}\n', '{"note": "two words"}\n'
    for name, lines in (("a", missing * 4), ("b", missing * 2 + present), ("c", present + missing * 2)):
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

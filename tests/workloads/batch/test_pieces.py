"""A channel's records in pieces, in the order of the input."""

import pytest

import raysm
from raysm.contract.paths import Paths
from raysm.errors import InstanceLost, InvalidInput
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import Span
from raysm.workloads.batch.pieces import Piece, _cut_there, pieces_of
from tests.support.batches import pack


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2, "piece_rows": 2} | fields)


def predict(batch):
    return {"y": batch["row"]}


def test_a_piece_says_what_it_holds():
    lines = Piece(number=3, span=Span(files=("a.txt",), start=10, first_row=4, rows=2))
    assert str(lines) == "part 3: a.txt, rows 4 to 5"
    images = Piece(number=0, span=Span(files=("a.png", "b.png")), host="algo-2")
    assert str(images) == "part 0: a.png and 1 more on algo-2"
    assert lines.file == "predictions/part-000003.parquet"


@pytest.mark.parametrize(("distribution", "host"), [("FullyReplicated", None), ("ShardedByS3Key", "algo-1")])
def test_files_are_cut_where_they_lie(base, distribution, host):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("1\n2\n3\n")
    (folder / "b.txt").write_text("4\n")
    (folder / ".DS_Store").write_text("nothing of the user's")
    (folder / "_SUCCESS").write_text("")
    pack(raysm.Batch(predict, batch_size=2), base, distribution=distribution)
    kind, pieces = pieces_of(asked(), "data")
    assert kind == "text"
    assert [(p.number, p.span.files, p.span.first_row, p.span.rows, p.host) for p in pieces] == [
        (0, ("a.txt",), 0, 2, host),
        (1, ("a.txt",), 2, 1, host),
        (2, ("b.txt",), 0, 1, host),
    ]


def test_a_channel_without_files_is_refused(base):
    Paths(base).channel("data").mkdir(parents=True)
    pack(raysm.Batch(predict, batch_size=2), base)
    with pytest.raises(InvalidInput, match="the channel 'data' has no files"):
        pieces_of(asked(), "data")


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_numbers_in_the_names_of_files_count_as_numbers(base, distribution):
    folder = Paths(base).channel("data")
    for name in ("part-10.txt", "part-2.txt", "part-1/a.txt", "b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    pack(raysm.Batch(predict, batch_size=2), base, distribution=distribution)
    _, pieces = pieces_of(asked(), "data")
    names = [name for piece in pieces for name in piece.span.files]
    assert names == ["b.txt", "part-1/a.txt", "part-2.txt", "part-10.txt"]


def test_files_that_are_a_record_each_are_grouped_in_that_order(base):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    for number in (1, 2, 10, 11):
        (folder / f"{number}.bin").write_bytes(b"x")
    pack(raysm.Batch(predict, batch_size=2), base, distribution="ShardedByS3Key")
    _, pieces = pieces_of(asked(read="files"), "data")
    assert [piece.span.files for piece in pieces] == [("1.bin", "2.bin"), ("10.bin", "11.bin")]


def test_a_share_whose_instance_went_away_is_missed_by_its_name(base):
    with pytest.raises(InstanceLost, match="algo-7 was lost while it listed its records of 'data'"):
        _cut_there("data", "text", {"algo-7": ["a.txt"]}, 2)

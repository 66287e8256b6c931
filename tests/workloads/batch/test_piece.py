"""A channel's records in pieces, in the order of the input."""

import pytest

import raysm
from raysm.contract.paths import Paths
from raysm.errors import InvalidInput, InvalidRequest
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats.format import Span
from raysm.workloads.batch.piece import Piece, channel_of, pieces_of
from tests.support.batches import pack


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2, "piece_rows": 2} | fields)


def predict(batch):
    return {"y": batch["row"]}


def test_the_only_input_is_read_unless_one_is_named():
    assert channel_of(asked(), ["texts"]) == "texts"
    assert channel_of(asked(channel="texts"), ["ids", "texts"]) == "texts"


@pytest.mark.parametrize(
    ("channel", "inputs", "message"),
    [
        (None, ["a", "b"], "has 2 inputs; say which one is read, channel='a'"),
        (None, [], "has 0 inputs; give one"),
        ("c", ["a", "b"], "has no input 'c'; it has a, b"),
    ],
)
def test_an_input_that_is_not_clear_is_asked_for(channel, inputs, message):
    with pytest.raises(InvalidRequest, match=message):
        channel_of(asked(channel=channel), inputs)


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

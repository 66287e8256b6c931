"""A channel's records in pieces, in the order of the input."""

import pytest

import raysm
from raysm.contract.paths import Paths
from raysm.request.batch import BatchInference
from raysm.workloads.batch.pieces import survey
from tests.support.batches import pack


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2, "piece_rows": 2} | fields)


def predict(batch):
    return {"y": batch["row"]}


@pytest.mark.parametrize(("distribution", "host"), [("FullyReplicated", None), ("ShardedByS3Key", "algo-1")])
def test_files_are_cut_where_they_lie(base, distribution, host):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("1\n2\n3\n")
    (folder / "b.txt").write_text("4\n")
    (folder / ".DS_Store").write_text("nothing of the user's")
    (folder / "_SUCCESS").write_text("")
    pack(raysm.Batch(predict, batch_size=2), base, distribution=distribution)
    kind, pieces, _ = survey(asked(), "data", print)
    assert kind == "text"
    assert [(p.number, p.span.files, p.span.first_row, p.span.rows, p.host) for p in pieces] == [
        (0, ("a.txt",), 0, 2, host),
        (1, ("a.txt",), 2, 1, host),
        (2, ("b.txt",), 0, 1, host),
    ]


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_numbers_in_the_names_of_files_count_as_numbers(base, distribution):
    folder = Paths(base).channel("data")
    for name in ("part-10.txt", "part-2.txt", "part-1/a.txt", "b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    pack(raysm.Batch(predict, batch_size=2), base, distribution=distribution)
    _, pieces, _ = survey(asked(), "data", print)
    names = [name for piece in pieces for name in piece.span.files]
    assert names == ["b.txt", "part-1/a.txt", "part-2.txt", "part-10.txt"]

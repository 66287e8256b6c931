"""Which format files have, by their names."""

import pytest

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats import FORMATS, format_of, named
from raysm.workloads.batch.formats.format import groups_of


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
    assert format_of(files, "data") == format


@pytest.mark.parametrize("files", [["a.png", "b.csv"], ["a.png", "model.bin"], ["README"]])
def test_files_of_several_or_unknown_formats_are_refused_with_what_to_say(files):
    with pytest.raises(InvalidInput, match=r"'data' are not all of one known format .*read='files'"):
        format_of(files, "data")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_a_record(name):
    assert named(name).keys[0] == "file"


def test_files_that_are_a_record_each_are_cut_by_their_number():
    spans = groups_of(["a", "b", "c"], 2)
    assert [(span.files, span.rows) for span in spans] == [(("a", "b"), 2), (("c",), 1)]

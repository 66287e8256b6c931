"""Which format a file has, and what a client checks before it sends a job."""

import pytest

from raysm.errors import InvalidInput
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import check_inputs, format_of


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


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2} | fields)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="the input 'data', has no files"):
        check_inputs(asked(), {"data": tmp_path})
    (tmp_path / "a.bin").write_text("1\n")
    with pytest.raises(InvalidInput, match="not all of one known format"):
        check_inputs(asked(), {"data": tmp_path})
    check_inputs(asked(read="files"), {"data": tmp_path})

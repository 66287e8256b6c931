"""Which format a file has, and what a client checks before it sends a job."""

import subprocess
import sys

import pytest

from raysm.errors import InvalidInput, InvalidRequest
from raysm.request.batch import BatchInference
from raysm.workloads.batch.formats import FORMATS, Span, check_inputs, format_of, groups_of, named


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


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (100, [5])])
def test_each_file_is_in_one_span_in_the_order_of_the_input(rows, sizes):
    files = [f"{number}.png" for number in range(5)]
    spans = groups_of(files, rows)
    assert [span.rows for span in spans] == sizes
    assert [file for span in spans for file in span.files] == files


def test_without_files_there_is_nothing_to_cut():
    assert groups_of([], 10) == []


def test_a_span_is_a_whole_file_unless_it_says_where_it_ends():
    span = Span(files=("a.csv",))
    assert (span.start, span.stop, span.first_row, span.rows) == (0, None, 0, None)


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2} | fields)


def test_a_folder_of_one_format_and_a_single_file_are_good(tmp_path):
    (tmp_path / "a.txt").write_text("1\n")
    check_inputs(asked(), {"data": tmp_path})
    check_inputs(asked(), {"data": tmp_path / "a.txt"})
    # What lies elsewhere is the job's to look at.
    check_inputs(asked(), {"data": None})


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="the input 'data', has no files"):
        check_inputs(asked(), {"data": tmp_path})
    (tmp_path / "a.bin").write_text("1\n")
    with pytest.raises(InvalidInput, match="not all of one known format"):
        check_inputs(asked(), {"data": tmp_path})
    check_inputs(asked(read="files"), {"data": tmp_path})


def test_what_lies_behind_a_link_to_a_folder_is_looked_at_too(tmp_path):
    for name in ("disk", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "more").symlink_to(tmp_path / "disk")
    with pytest.raises(InvalidInput, match="the input 'data', has no files"):
        check_inputs(asked(), {"data": tmp_path / "data"})
    (tmp_path / "disk" / "a.txt").write_text("1\n")
    check_inputs(asked(), {"data": tmp_path / "data"})
    (tmp_path / "disk" / "b.bin").write_text("1\n")
    with pytest.raises(InvalidInput, match="not all of one known format"):
        check_inputs(asked(), {"data": tmp_path / "data"})


def test_two_inputs_need_a_name(tmp_path):
    with pytest.raises(InvalidRequest, match="has 2 inputs"):
        check_inputs(asked(), {"a": tmp_path, "b": None})


def test_a_client_without_ray_and_numpy_looks_too(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from raysm.request.batch import BatchInference\n"
        "from raysm.workloads.batch.formats import check_inputs\n"
        "workload = BatchInference(name='m', python='3.11', batch_size=2)\n"
        "check_inputs(workload, {'data': Path(sys.argv[1])})\n"
        "print({'ray', 'numpy'} & sys.modules.keys())\n"
    )
    (tmp_path / "a.txt").write_text("1\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

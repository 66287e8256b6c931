"""Lines as records: cut anywhere, read the same."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.text import Text

LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=20)


def read(folder, files, rows, batch_size=3):
    spans = Text().cut(folder, files, rows)
    return [batch for span in spans for batch in Text().batches(folder, span, batch_size, 1)]


@given(lines=LINES, rows=st.integers(1, 8), ends=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_line_comes_once_with_its_number_wherever_it_is_cut(tmp_path_factory, lines, rows, ends, last):
    folder = tmp_path_factory.mktemp("text")
    # A file that ends without a newline has a last line all the same, unless that is empty.
    text = ends.join(lines) + (ends if last or not lines[-1] else "")
    (folder / "a.txt").write_bytes(text.encode())
    batches = read(folder, ["a.txt"], rows)
    assert [line for batch in batches for line in batch["text"]] == lines
    assert [row for batch in batches for row in batch["row"].tolist()] == list(range(len(lines)))
    assert {name for batch in batches for name in batch["file"]} == {"a.txt"}


def test_a_compressed_file_is_one_span(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    assert len(Text().cut(tmp_path, ["a.txt.gz"], 1)) == 1
    assert [line for batch in read(tmp_path, ["a.txt.gz"], 1, 2) for line in batch["text"]] == ["one", "two", "three"]


def test_a_compressed_file_is_known_in_capitals_too(tmp_path):
    (tmp_path / "A.TXT.GZ").write_bytes(gzip.compress(b"one\ntwo\n"))
    (batch,) = read(tmp_path, ["A.TXT.GZ"], 1)
    assert batch["text"].tolist() == ["one", "two"]


def test_a_compressed_file_that_is_torn_is_named(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\n")[:-12])
    with pytest.raises(InvalidInput, match=r"a\.txt\.gz cannot be read: Compressed file ended"):
        read(tmp_path, ["a.txt.gz"], 1)


def test_a_line_that_is_no_text_is_named_by_its_rows(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\n")
    with pytest.raises(InvalidInput, match="rows 0 to 1 is not UTF-8"):
        read(tmp_path, ["a.txt"], 5)


def test_an_empty_file_has_no_records(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    assert read(tmp_path, ["a.txt"], 5) == []

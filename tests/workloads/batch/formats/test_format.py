"""How files that are a record each are cut into spans."""

import pytest

from raysm.workloads.batch.formats.format import Span, groups_of


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

"""What a session's user gives: checked where it is given, by name, value and remedy."""

import numpy
import pytest

from raysm.client.session.arguments import check_instance, check_number, check_text, check_whole
from raysm.errors import InvalidRequest


@pytest.mark.parametrize("value", ["1", None, -1, float("nan"), float("inf"), True, [1]])
def test_what_is_no_number_of_that_size_is_refused_with_its_value_and_an_example(value):
    with pytest.raises(InvalidRequest, match=r"keep: minutes must be a number of at least 0, got .*; keep\(60\), say"):
        check_number("keep: minutes", value, example="keep(60)")


@pytest.mark.parametrize("value", [0, 1.5, numpy.float32(2), numpy.int64(3)])
def test_numbers_of_every_kind_will_do(value):
    check_number("keep: minutes", value, example="keep(60)")


@pytest.mark.parametrize("value", ["1", None, -1, 1.0, False, 10])
def test_what_is_no_whole_number_in_its_span_is_refused(value):
    with pytest.raises(InvalidRequest, match=rf"map: retries must be a whole number from 0 to 9, got {value!r}"):
        check_whole("map: retries", value, most=9)


def test_a_whole_number_may_be_numpys_and_without_end():
    check_whole("map: retries", numpy.int64(3))
    with pytest.raises(InvalidRequest, match="of at least 1, got 0"):
        check_whole("calls: limit", 0, least=1)


@pytest.mark.parametrize("value", [None, 3, "", "  ", b"true"])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(InvalidRequest, match=r"shell: a command must be a text, got .*; shell\('true'\), say"):
        check_text("shell: a command", value, "shell('true')")


def test_the_head_needs_no_name_and_an_instance_is_named_by_a_text():
    check_instance("exec", None)
    check_instance("exec", "algo-2")
    with pytest.raises(InvalidRequest, match="exec: on must be a text, got 2; on='algo-2', say"):
        check_instance("exec", 2)

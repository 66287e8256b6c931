"""The record of rows that share a job: what comes back, and what of it is believed."""

import pytest

from raysm.contract.row_record import RowOutcome, confirmed, outcomes_in, outcomes_text

OUTCOMES = {
    "a": RowOutcome(state="done", seconds=1.5, host="algo-2", files={"model/x.bin": 3, "data/y": 0}),
    "b": RowOutcome(state="failed", reason="größe: the script ended with 1"),
    "c": RowOutcome(state="running"),
}


def test_it_comes_back_as_it_was_written():
    assert outcomes_in(outcomes_text(OUTCOMES)) == OUTCOMES


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rows": {"a": {"state": "lost"}}}', '{"rows": {"a": 1}}', b"\xff"])
def test_what_is_no_record_says_nothing(text):
    assert outcomes_in(text) == {}


def test_a_torn_record_says_nothing():
    text = outcomes_text(OUTCOMES)
    assert {len(outcomes_in(text[:end])) for end in range(len(text))} == {0}


def test_a_row_is_done_when_all_its_files_are_there_whole():
    sizes = {"a/model/x.bin": 3, "a/data/y": 0, "b/model/old": 1}
    assert confirmed(OUTCOMES, sizes) == OUTCOMES


@pytest.mark.parametrize("sizes", [{}, {"a/model/x.bin": 3}, {"a/model/x.bin": 2, "a/data/y": 0}])
def test_a_row_whose_files_lack_or_are_cut_still_runs_as_far_as_anybody_can_tell(sizes):
    outcomes = confirmed(OUTCOMES, sizes)
    assert outcomes["a"] == RowOutcome(state="running", host="algo-2")
    assert (outcomes["b"], outcomes["c"]) == (OUTCOMES["b"], OUTCOMES["c"])

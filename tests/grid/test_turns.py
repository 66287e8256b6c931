"""Works of several regions: their calls overlap, nothing else does, and one's failure ends the others."""

import threading
from concurrent.futures import CancelledError

import pytest

from raysm.grid.database import Turns

DEADLINE_S = 60.0


def test_calls_are_on_their_way_at_the_same_time():
    turns, both = Turns(), threading.Barrier(2)

    def work():
        with turns.away():
            both.wait(DEADLINE_S)

    turns.each([work, work])
    assert not both.broken


def test_all_else_is_done_one_after_the_other():
    turns, all_there, inside, most = Turns(), threading.Barrier(3), [], []

    def work():
        for _ in range(5):
            with turns.away():
                all_there.wait(DEADLINE_S)
            inside.append(1)
            # Long enough for another one to come in, if it were let in.
            threading.Event().wait(0.01)
            most.append(len(inside))
            inside.pop()

    turns.each([work] * 3)
    assert most == [1] * 15


def test_what_a_call_does_with_what_is_everybodys_it_does_in_its_turn():
    turns, used = Turns(), []

    def work():
        with turns.away(), turns.back():
            used.append("begin")
            used.append("end")

    turns.each([work] * 4)
    assert used == ["begin", "end"] * 4


def test_where_one_fails_the_others_end_before_their_next_call():
    turns, failed, ended = Turns(), threading.Event(), []

    def fail():
        with turns.away():
            pass
        failed.set()
        raise ValueError("the first")

    def go_on():
        try:
            with turns.away():
                failed.wait(DEADLINE_S)
            with turns.away():
                ended.append("called")
        except CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(ValueError, match="the first"):
        turns.each([go_on, fail])
    assert ended == ["cancelled"]


def test_one_work_alone_is_done_by_the_caller():
    turns, threads = Turns(), []

    def work():
        with turns.away():
            threads.append(threading.current_thread())

    turns.each([work])
    assert threads == [threading.current_thread()]

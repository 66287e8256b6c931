"""Where the time of each step goes."""

import contextlib
import threading

import pytest

from raysm.workloads.training.measure import CHECKPOINT, COMPUTE, DATA, MEASURING, OTHER, Spans


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def passes(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def spans(clock):
    return Spans(clock)


def spend(clock, spans, kind, seconds):
    with spans.span(kind):
        clock.passes(seconds)


def test_the_kinds_and_the_rest_make_the_whole_time(clock, spans):
    for _ in range(2):
        spend(clock, spans, DATA, 1)
        spend(clock, spans, COMPUTE, 3)
        spend(clock, spans, COMPUTE, 2)
        clock.passes(4)
        spans.step_done()
    assert spans.total.steps == 2
    assert spans.total.wall_s == 20
    assert spans.total.seconds == {DATA: 2, COMPUTE: 10, OTHER: 8}
    assert spans.total.share(COMPUTE) == 0.5
    assert spans.total.share(CHECKPOINT) == 0


def test_a_span_inside_another_counts_for_itself_alone(clock, spans):
    with spans.span(COMPUTE):
        clock.passes(1)
        with spans.span(CHECKPOINT):
            clock.passes(2)
            spend(clock, spans, DATA, 4)
        clock.passes(8)
    spans.step_done()
    assert spans.total.seconds == {COMPUTE: 9, CHECKPOINT: 2, DATA: 4, OTHER: 0}


def test_what_measuring_takes_is_in_no_step(clock, spans):
    spend(clock, spans, COMPUTE, 5)
    spend(clock, spans, MEASURING, 50)
    spans.step_done()
    assert spans.total.wall_s == 5
    assert spans.total.seconds == {COMPUTE: 5, OTHER: 0}


def test_a_save_in_the_background_delays_no_step(clock, spans):
    thread = threading.Thread(target=spend, args=(clock, spans, CHECKPOINT, 7))
    thread.start()
    thread.join()
    spans.step_done()
    assert spans.total.seconds == {OTHER: 7}


def test_a_span_ends_also_where_its_body_raises(clock, spans):
    with contextlib.suppress(KeyError), spans.span(DATA):
        clock.passes(3)
        raise KeyError
    spend(clock, spans, COMPUTE, 1)
    spans.step_done()
    assert spans.total.seconds == {DATA: 3, COMPUTE: 1, OTHER: 0}


def test_warming_up_is_forgotten(clock, spans):
    spend(clock, spans, COMPUTE, 60)
    spans.step_done()
    spans.restart()
    spend(clock, spans, COMPUTE, 1)
    spans.step_done()
    assert (spans.total.steps, spans.total.wall_s) == (1, 1)


def test_recent_steps_are_those_since_they_were_last_asked_for(clock, spans):
    for seconds in (1, 2, 4):
        spend(clock, spans, COMPUTE, seconds)
        spans.step_done()
        if seconds == 1:
            assert spans.take_recent().wall_s == 1
    assert (spans.take_recent().steps, spans.take_recent().steps) == (2, 0)
    assert spans.total.steps == 3

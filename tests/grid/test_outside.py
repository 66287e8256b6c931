"""Calls go out under their buckets, and come back as an answer, a refusal or silence."""

import threading

import pytest

from raysm.errors import JobNotFound, ServiceError
from raysm.grid.database import Turns
from raysm.grid.limiter import Limiter, Rate
from raysm.grid.outside import LATEST, Outside, Silence


@pytest.fixture
def outside():
    limiter = Limiter(":memory:", {"list": Rate(per_s=1), "create": Rate(per_s=1)})
    outside = Outside({"r": object()}, limiter, POINTS.append, Turns())
    POINTS.clear()
    yield outside
    limiter.close()


POINTS = []


def raising(error):
    def call(region):
        raise error

    return call


def test_an_answer_is_announced_before_and_after(outside):
    assert outside.ask("r", "list", 0.0, lambda region: 7) == 7
    assert POINTS == ["before list", "after list"]


def test_without_a_call_left_nobody_is_asked(outside):
    outside.ask("r", "list", 0.0, lambda region: 7)
    with pytest.raises(Silence) as silence:
        outside.ask("r", "list", 0.0, raising(AssertionError("asked")))
    assert silence.value.reason == ""


def test_a_throttled_call_is_silence_and_slows_the_bucket(outside):
    with pytest.raises(Silence):
        outside.ask("r", "list", 0.0, raising(ServiceError("Rate exceeded", code="ThrottlingException")))
    assert outside.limiter.wait_s("r", "list", 0.0) == pytest.approx(2.0)


@pytest.mark.parametrize("error", [ServiceError("lost", is_transient=True), ServiceError("no", code="AccessDenied")])
def test_a_region_that_cannot_be_reached_or_lets_nobody_in_is_silent(outside, error):
    with pytest.raises(Silence) as silence:
        outside.ask("r", "list", 0.0, raising(error))
    assert silence.value.reason == str(error)


def test_a_definite_answer_is_the_callers_to_judge(outside):
    with pytest.raises(JobNotFound):
        outside.ask("r", "list", 0.0, raising(JobNotFound("none", code="ValidationException")))


def test_create_is_announced_too_and_its_refusal_is_passed_on(outside):
    with pytest.raises(ServiceError, match="no"):
        outside.create("r", raising(ServiceError("no", code="ValidationException")))
    assert POINTS == ["before create"]


def test_an_answer_whose_call_was_taken_before_takes_no_other(outside):
    assert outside.limiter.take("r", "list", 0.0) == 1
    assert outside.answer("r", "list", 0.0, lambda region: 7) == 7


def test_a_create_that_took_a_while_counts_from_its_answer():
    moments = iter([100.0, 103.0])
    limiter = Limiter(":memory:", {"create": Rate(per_s=1, burst=1)}, moment=lambda: next(moments))
    outside = Outside({"r": object()}, limiter, POINTS.append, Turns())
    outside.begin(50.0)
    assert limiter.take("r", "create", 50.0) == 1
    outside.create("r", lambda region: None)
    assert limiter.wait_s("r", "create", 53.0) == pytest.approx(1.0)
    limiter.close()


def test_who_takes_a_while_to_call_sets_out_for_the_next_one_so_much_earlier():
    # Each waited for its token, and then took two seconds to get there: of five seconds a call it used seven.
    now = [100.0]
    limiter = Limiter(":memory:", {"create": Rate(per_s=0.2, burst=1)}, moment=lambda: now[0])
    outside = Outside({"r": object()}, limiter, POINTS.append, Turns())

    def call(region):
        now[0] += 2.0
        answered.append(now[0])

    answered = []
    for _ in range(LATEST + 3):
        outside.begin(now[0])
        assert limiter.take("r", "create", now[0]) == 1
        outside.create("r", call)
        now[0] += limiter.wait_s("r", "create", now[0]) + 1e-6
    pauses = [after - before for before, after in zip(answered, answered[1:], strict=False)]
    # Not by the first ones: one that was quick by chance would have its followers come too early.
    assert pauses == [pytest.approx(7, abs=0.01)] * (LATEST - 1) + [pytest.approx(5, abs=0.01)] * 3
    limiter.close()


def test_where_the_clock_stands_still_regions_are_called_in_their_order(outside):
    threads = []
    outside.regions |= {"s": object(), "t": object()}
    outside.side_by_side("rst", str, lambda region, _: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()] * 3


def test_each_region_is_given_what_is_its_own_in_its_order_and_what_is_in_none_is_left(outside):
    outside.regions |= {"s": object()}
    given = {}
    outside.side_by_side(["r1", "s1", "x1", "r2"], lambda item: item[0], given.__setitem__)
    assert given == {"r": ["r1", "r2"], "s": ["s1"]}

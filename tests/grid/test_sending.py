"""Create and its answers: the same name is sent again until the service has settled it."""

from collections import Counter

import pytest

from raysm.errors import ServiceError
from raysm.grid.attempt import AttemptState
from raysm.grid.limiter import RATES, Rate
from raysm.grid.rules import Rules
from raysm.grid.sending import SENDS, send_owed
from tests.support.grid_world import LOST, THROTTLED, Behaviour
from tests.support.grids import Bench, Killed


def bench(folder, refusal):
    one = Bench(folder, rows=1, regions={"us-east-1": Behaviour(refusal=refusal)})
    one.step()
    return one


def test_an_answer_that_is_lost_leaves_the_attempt_in_doubt(tmp_path):
    (attempt,) = bench(tmp_path, LOST).store.open_attempts()
    assert (attempt.state, attempt.calls, attempt.is_doubtful) == (AttemptState.MAYBE, 1, True)


def test_too_many_calls_leave_it_intended_and_in_no_doubt(tmp_path):
    (attempt,) = bench(tmp_path, THROTTLED).store.open_attempts()
    assert (attempt.state, attempt.is_doubtful) == (AttemptState.INTENDED, False)


def test_the_same_name_is_sent_again_the_later_the_oftener(tmp_path):
    one = bench(tmp_path, LOST)
    one.regions["us-east-1"].behaviour.silent = ()
    pauses = []
    while one.clock.now < 1_800_000_000 + 600:
        one.step()
        (attempt,) = one.store.open_attempts()
        pauses.append(attempt.calls)
    assert {each.name for each in one.store.attempts()} == {attempt.name}
    assert 5 < pauses[-1] < 15


def test_once_it_is_taken_no_doubt_is_left(tmp_path):
    one = bench(tmp_path, LOST)
    one.regions["us-east-1"].behaviour.refusal = None
    one.run()
    (attempt,) = one.store.attempts()
    assert (attempt.ending, attempt.is_doubtful) == ("OK", False)


def test_a_refusal_that_follows_a_lost_answer_is_watched(tmp_path):
    one = bench(tmp_path, LOST)
    one.regions["us-east-1"].behaviour.refusal = ServiceError("no", code="ValidationException")
    while one.store.open_attempts():
        one.step()
    (attempt,) = one.store.attempts()
    assert attempt.watch_s == attempt.ended_s + 900


def test_what_is_to_be_stopped_is_not_sent_any_more(tmp_path):
    one = bench(tmp_path, THROTTLED)
    one.store.database.connection.execute("UPDATE attempt SET wish = 'user'")
    calls = one.regions["us-east-1"].calls["create"]
    send_owed(one.store, one.controller._outside, (), one.clock.now + 600)
    assert one.regions["us-east-1"].calls["create"] == calls


def test_of_many_calls_a_crash_has_no_more_made_again_than_are_kept_together(tmp_path):
    sent = []
    one = Bench(tmp_path, rows=3 * SENDS, regions={"us-east-1": Behaviour()}, rules=Rules(brake=0, parallel=1000))

    def ends_at_the_second_part(point):
        sent.append(point)
        if sent.count("after create") == SENDS + 5:
            raise Killed(point)

    one.limiter.take("us-east-1", "create", one.clock.now)
    one.clock.now += 60
    one.kill = ends_at_the_second_part
    with pytest.raises(Killed):
        one.step()
    assert Counter(attempt.state for attempt in one.store.attempts())[AttemptState.SENT] == SENDS
    one.kill = lambda point: None
    one.run()
    one.judge()
    assert len(one.regions["us-east-1"].lives) == 3 * SENDS


def test_once_there_were_too_many_calls_the_others_of_a_step_are_not_made(tmp_path):
    # Five were refused for one mistake, and the rate fell from 1 to the least there is.
    rates = {"create": Rate(per_s=1, burst=5)}
    one = Bench(tmp_path, rows=8, regions={"us-east-1": Behaviour(rates={"create": 0.5})}, rates=RATES | rates)
    one.limiter.give_back("us-east-1", "create", 4, one.clock.now)
    one.step()
    region = one.regions["us-east-1"]
    assert (len(region.lives), region.throttled) == (1, 1)
    states = Counter(attempt.state for attempt in one.store.attempts())
    assert states == {AttemptState.SENT: 1, AttemptState.INTENDED: 4}
    # Halved once.
    assert one.limiter._at("us-east-1", "create", one.clock.now).rate == pytest.approx(0.5, abs=0.01)
    one.run()
    assert one.states() == {"done": 8}
    one.judge()


def test_once_an_answer_is_lost_the_others_of_a_step_are_not_waited_for(tmp_path):
    # In a step that made them all a region that is silent would hold up the others for as many timeouts.
    silent = Behaviour(refusal=LOST)
    one = Bench(tmp_path, rows=3 * SENDS, regions={"us-east-1": silent}, rules=Rules(brake=0, parallel=1000))
    one.limiter.take("us-east-1", "create", one.clock.now)
    one.clock.now += 60
    one.step()
    assert one.regions["us-east-1"].calls["create"] == 1
    states = Counter(attempt.state for attempt in one.store.attempts())
    assert states[AttemptState.MAYBE] == 1
    assert states[AttemptState.INTENDED] == states.total() - 1 > SENDS
    # All together are tried again, and not one after the other.
    assert len({attempt.retry_s for attempt in one.store.attempts()}) == 1
    silent.refusal = None
    one.run()
    assert one.states() == {"done": 3 * SENDS}
    one.judge()

"""Who is next in a queue of Batch, and whose time is up."""

from raysm.local.server.batch.records import BatchJob, Try
from raysm.local.server.batch.waiting import in_turn, time_is_up, weights_of
from raysm.local.server.batch.work import NO_CAPACITY


def job(name, *, share="", priority=0, created_s=0.0, **fields):
    request = {"shareIdentifier": share} if share else {}
    return BatchJob(
        id=name,
        kind="job",
        name=name,
        region="us-east-1",
        queue="q",
        request=request,
        created_s=created_s,
        priority=priority,
        **fields,
    )


def order(waiting, running=(), weights=None):
    return [one.name for one in in_turn(waiting, running, weights or {}, lambda _: 1.0)]


def test_first_come_is_first_served():
    assert order([job("late", created_s=2.0), job("early", created_s=1.0)]) == ["early", "late"]


def test_the_highest_priority_is_before_all():
    assert order([job("early"), job("urgent", priority=9, created_s=5.0)]) == ["urgent", "early"]


def test_the_children_of_an_array_begin_by_their_indices():
    assert order([job("b", index=10, size=20), job("a", index=2, size=20)]) == ["a", "b"]


def test_shares_take_turns_whoever_came_first():
    waiting = [job(f"a{i}", share="a", created_s=float(i)) for i in range(3)] + [job("b0", share="b", created_s=9.0)]
    assert order(waiting, weights=weights_of({})) == ["a0", "b0", "a1", "a2"]


def test_a_share_that_uses_more_already_waits_for_the_others():
    waiting = [job("a1", share="a"), job("b0", share="b", created_s=1.0)]
    assert order(waiting, [job("a0", share="a")], weights_of({})) == ["b0", "a1"]


def test_a_share_of_less_weight_has_more():
    policy = {"fairsharePolicy": {"shareDistribution": [{"shareIdentifier": "team*", "weightFactor": 0.25}]}}
    waiting = [job(f"t{i}", share="team1") for i in range(4)] + [job(f"x{i}", share="x") for i in range(2)]
    assert order(waiting, weights=weights_of(policy)) == ["t0", "x0", "t1", "t2", "t3", "x1"]


ACTIONS = [{"reason": NO_CAPACITY, "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "TERMINATE"}]


def starved(*begun_s, **fields):
    tries = tuple(Try(resource="", begun_s=at, stopped_s=at + 50, is_starved=True) for at in begun_s)
    return job("j", runnable_s=0.0, tries=tries, reason=f"{NO_CAPACITY} - Unable to provision", **fields)


def test_a_job_that_waits_for_capacity_too_long_is_to_end():
    assert time_is_up(starved(100.0, 400.0), ACTIONS, 699.0) is None
    assert time_is_up(starved(100.0, 400.0), ACTIONS, 700.0) == ACTIONS[0]


def test_what_waits_for_its_turn_waits_for_no_capacity():
    assert time_is_up(job("j", runnable_s=0.0), ACTIONS, 10_000.0) is None


def test_an_attempt_that_ran_had_its_capacity_and_the_time_begins_anew():
    ran = Try(resource="", begun_s=0.0, started_s=1.0, stopped_s=5_000.0)
    again = starved(5_000.0)
    waiting = job("j", runnable_s=0.0, tries=(ran, *again.tries), reason=again.reason)
    assert time_is_up(waiting, ACTIONS, 5_500.0) is None
    assert time_is_up(waiting, ACTIONS, 5_600.0) == ACTIONS[0]

"""That every grid ends, or says what it waits for: places that have nothing, quotas of others, refusals, a budget."""

import random
from dataclasses import replace

import pytest

from raysm.core.client.costs.cap import STOP_GRACE_S
from raysm.core.client.job.description import Description, SecondaryStatus, Status, read
from raysm.core.protocol.home import Clock
from raysm.core.protocol.job_api import TRAINING
from raysm.errors import CredentialsExpired, ServiceError
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.attempt_end import add_cost, end_without_job
from raysm.features.grid.endings import (
    ENDINGS,
    Verdict,
    classify_end,
    classify_refusal,
    parse_quota,
    reason_key,
    shortened,
)
from raysm.features.grid.market import Offer, Place
from raysm.features.grid.placement import Placement
from raysm.features.grid.row import RETRYABLE_STATES, Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import Running
from raysm.features.grid.store.store import Store
from tests.support.budgets import USER
from tests.support.grid_world import Behaviour
from tests.support.grids import TYPE, Bench

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
BEGIN_S = 1_800_000_000.0

PATIENT = Rules(brake=0, give_up_s=HOUR_S)
"""As the rules are by default, but for a day, which is 10,000 steps."""

DENIED = ServiceError(
    "create: AccessDeniedException: not authorized to perform", code="AccessDeniedException"
)


def rows_in(region, rows, **more):
    return [
        Row(key=f"row-{number}", position=number, max_runtime_s=7200, region=region, **more)
        for number in range(rows)
    ]


def priced(regions, **more):
    offers = [
        Offer(place=Place(region=name, instance_type=TYPE), usd_per_hour=each.usd_per_hour)
        for name, each in regions.items()
    ]
    return Placement(offers=offers, **more)


def test_rows_that_may_go_nowhere_else_are_given_up_together_with_the_words_of_the_place(tmp_path):
    regions = {"full": Behaviour(capacity=0, start_s=60)}
    bench = Bench(tmp_path, regions=regions, rows=rows_in("full", 40), rules=PATIENT)
    took_s = bench.run()
    assert bench.states() == {"failed": 40}
    assert HOUR_S < took_s < 3 * HOUR_S
    assert {record.reason for record in bench.store.rows.all("failed")} == {
        "given up: for 1 h no place took a job (ml.m5.large in full: CapacityError: Unable to provision requested ML "
        "compute capacity. Please retry.); give more types or regions, or wait"
    }
    # One an hour at most asks whether there is any: each is a call of a rate that all grids of the
    # account share.
    assert len(bench.store.attempts.all()) < 60


def test_a_row_whose_instances_are_taken_away_each_time_is_not_paid_for_without_end(tmp_path):
    # A place that gives them is none that refuses: what bounds those never comes.
    taken = {"row-0": "InsufficientInstanceCapacity: the instances were taken back"}
    bench = Bench(tmp_path, regions={"fickle": Behaviour(fails=taken)}, rows=rows_in("fickle", 2))
    bench.run()
    assert bench.states() == {"done": 1, "failed": 1}
    assert len(bench.store.attempts.of_row("row-0")) == ENDINGS["CAPACITY"].max_started == 8
    assert (
        "8 jobs ended like this after their instances had started"
        in bench.store.rows.get("row-0").reason
    )


def test_of_a_row_that_was_asked_for_again_the_jobs_before_do_not_count(tmp_path):
    fickle = Behaviour(
        fails={"row-0": "InsufficientInstanceCapacity: the instances were taken back"}
    )
    bench = Bench(tmp_path, regions={"fickle": fickle}, rows=rows_in("fickle", 1))
    bench.run()
    assert bench.store.requeue(["failed"], bench.clock.now) == 1
    bench.run()
    assert bench.states() == {"failed": 1}
    assert len(bench.store.attempts.of_row("row-0")) == 16
    fickle.fails.clear()
    bench.store.requeue(["failed"], bench.clock.now)
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 1}
    # With nothing to try again, it stays closed.
    assert bench.store.requeue(["failed"], bench.clock.now) == 0
    assert bench.store.grid().state == "closed"


def test_credentials_that_are_refused_for_long_end_a_grid(tmp_path):
    bench = Bench(
        tmp_path, regions={"shut": Behaviour(refusal=DENIED)}, rows=rows_in(None, 8), rules=PATIENT
    )
    took_s = bench.run()
    assert bench.states() == {"failed": 8}
    assert took_s < 3 * HOUR_S
    assert "not authorized" in bench.store.rows.get("row-7").reason


def test_a_laptop_that_slept_for_days_gives_nothing_up_for_it(tmp_path):
    bench = Bench(
        tmp_path, regions={"full": Behaviour(capacity=0)}, rows=rows_in("full", 4), rules=PATIENT
    )
    while len(bench.store.attempts.all()) < 6:
        bench.step()
    bench.clock.now += 3 * DAY_S
    while len(bench.store.attempts.all()) < 9:
        bench.step()
    assert "failed" not in bench.states()


def test_rows_are_given_up_only_after_each_of_their_places_has_refused_for_long(tmp_path):
    regions = {"full": Behaviour(capacity=0), "other": Behaviour()}
    rules = Rules(brake=0, parallel=1, give_up_s=HOUR_S)
    bench = Bench(tmp_path, regions=regions, rows=rows_in(None, 12), rules=rules)
    bench.run_until(lambda: bench.clock.now > BEGIN_S + 1.5 * HOUR_S)
    regions["other"].capacity = 0
    bench.run_until(lambda: bench.clock.now > BEGIN_S + 2 * HOUR_S)
    regions["other"].capacity = 10**9
    bench.run()
    assert bench.states() == {"done": 12}


def test_under_a_budget_a_place_without_a_price_takes_nothing_and_the_others_are_waited_for(
    tmp_path,
):
    regions = {"unlisted": Behaviour(usd_per_hour=None), "full": Behaviour(capacity=0)}
    placement = priced(regions)
    rules = Rules(brake=0, give_up_s=HOUR_S, max_cost=1e6)
    bench = Bench(
        tmp_path, regions=regions, rows=rows_in(None, 4), placement=placement, rules=rules
    )
    bench.run(most_s=2 * DAY_S)
    assert bench.states() == {"failed": 4}
    assert bench.regions["unlisted"].calls["create"] == 0


def scenario(seed):
    """Return a bench's parts by chance, and moments at which a user stops the grid, or has its rows tried again."""
    chance = random.Random(seed)
    regions = {
        name: Behaviour(
            start_s=chance.choice((5, 240, 900)),
            run_s=chance.choice((60, 600, 7000)),
            capacity=chance.choice((0, 0, 1, 3, 10**9)),
            quota=chance.choice((0, 1, 4, 10**9)),
            others=(chance.choice((0, 0, 4)), 2e9),
            usd_per_hour=chance.choice((1.0, 5.0)),
            lost=chance.choice((0, 0, 0.2)),
            refusal=chance.choice((None, None, None, DENIED)),
            silent=chance.choice(
                ((), (), ((BEGIN_S, BEGIN_S + 8 * HOUR_S),), ((BEGIN_S + 300, BEGIN_S + 2000),))
            ),
            fails={"share:0.2": "AlgorithmError: exit code: 1"},
        )
        for name in ("us-east-1", "eu-west-1", "eu-north-1")[: chance.choice((1, 2, 3))]
    }
    rows = [
        Row(
            key=f"row-{number}",
            position=number,
            region=chance.choice((None, *regions)),
            count=chance.choice((None, 1, 2)),
            max_runtime_s=7200,
        )
        for number in range(chance.choice((3, 12)))
    ]
    rules = Rules(
        brake=chance.choice((0, 2)),
        retries=1,
        parallel=chance.choice((2, 50)),
        max_cost=chance.choice((None, 3.0, 40.0, 1e6)),
        give_up_s=HOUR_S,
        patience_s=600,
    )
    placement = priced(regions) if chance.random() < 0.5 else None
    wishes = {
        chance.randrange(1, 200): chance.choice(("stopping", "again"))
        for _ in range(chance.choice((0, 1, 2)))
    }
    return regions, rows, rules, placement, wishes


@pytest.mark.parametrize(
    "seed",
    [1, 2, 3, 5, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 4, *range(6, 40)))],
)
def test_no_row_waits_where_nothing_will_ever_change(tmp_path, seed):
    regions, rows, rules, placement, wishes = scenario(seed)
    bench = Bench(tmp_path, regions=regions, rows=rows, rules=rules, placement=placement)
    for step in range(200):
        if not bench.step():
            break
        if wishes.get(step) == "stopping":
            bench.store.change_state("stopping", bench.clock.now, fenced=False)
        elif wishes.get(step) == "again":
            bench.store.requeue(["failed", "stopped"], bench.clock.now)
    bench.run(most_s=4 * DAY_S)
    grid = bench.store.grid()
    states = bench.states()
    # Over, or paused with what it waits for in words.
    assert (
        grid.state == "closed"
        and not {"waiting", "placed"} & states.keys()
        or grid.state == "paused"
        and grid.why
    )
    assert all(
        record.reason
        for state in ("failed", "impossible")
        for record in bench.store.rows.all(state)
    )
    bench.judge(ended=grid.state == "closed")
    if rules.max_cost is not None:
        assert sum(region.usd() for region in bench.regions.values()) <= rules.max_cost + 1e-9


def test_a_place_without_a_price_is_taken_once_the_others_have_refused_for_an_hour(tmp_path):
    regions = {"full": Behaviour(capacity=0), "unlisted": Behaviour(usd_per_hour=None)}
    bench = Bench(tmp_path, regions=regions, rows=rows_in(None, 4), placement=priced(regions))
    assert HOUR_S < bench.run() < 4 * HOUR_S
    assert bench.states() == {"done": 4}


LIMIT = (
    "create_training_job: ResourceLimitExceeded: The account-level service limit 'ml.p4d.24xlarge for spot training "
    "job usage' is 2 Instances, with current utilization of 1 Instances and a request delta of 2 Instances."
)


def job(
    status, reason="", secondary=SecondaryStatus.NONE, phases=("Starting", "Pending", "Training")
):
    transitions = tuple((phase, None, None) for phase in phases)
    return Description(
        name="j",
        arn="",
        api=TRAINING,
        status=status,
        reason=reason,
        secondary=secondary,
        transitions=transitions,
    )


@pytest.mark.parametrize(
    ("code", "text", "name"),
    [
        ("ResourceLimitExceeded", LIMIT, "QUOTA"),
        ("ThrottlingException", "Rate exceeded", "THROTTLED"),
        ("TooManyRequestsException", "", "THROTTLED"),
        ("ClientError", "Rate exceeded", "THROTTLED"),
        ("ResourceInUse", "Training job names must be unique", "CLASH"),
        ("ValidationException", "no such image", "INVALID"),
        ("", "Parameter validation failed: Unknown parameter in input", "INVALID"),
        (
            "AccessDeniedException",
            "not authorized to perform sagemaker:CreateTrainingJob",
            "DENIED",
        ),
        ("", "no AWS credentials were found", "DENIED"),
        ("SomethingNew", "which nobody has seen", "UNKNOWN"),
    ],
)
def test_a_refusal_has_the_class_of_its_words(code, text, name):
    assert classify_refusal(ServiceError(text, code=code)).ending.name == name


def test_expired_credentials_are_a_denial_whatever_their_code():
    # The region is left alone until the user has logged in again; any other class would fail the
    # row.
    error = CredentialsExpired("the SSO session has expired", code="SomethingNew")
    assert classify_refusal(error).ending.name == "DENIED"


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (
            "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different",
            "CAPACITY",
        ),
        ("There is not enough capacity for instance type ml.p4d.24xlarge", "CAPACITY"),
        ("InsufficientInstanceCapacity: we currently do not have sufficient capacity", "CAPACITY"),
        ("InternalServerError: We encountered an internal error. Please try again.", "SERVICE"),
        ("AlgorithmError: RuntimeError: CUDA error, exit code: 1", "USER"),
        ("AlgorithmError: SIGKILL, exit code: 137", "USER"),
        ("AlgorithmError: myapp.errors.ValueErrorLike: x, exit code: 1", "USER"),
        ("AlgorithmError: NameError: x, exit code: 1", "ERROR"),
        ("AlgorithmError: ValueError\nTraceback (most recent call last)", "ERROR"),
        ("AlgorithmError: rank 1 on algo-2: KeyError: 'lr', exit code: 1", "ERROR"),
        (
            "AlgorithmError: SystemExit: 2, train.py: error: argument --lr: invalid float value: '8x', exit code: 2",
            "ERROR",
        ),
        (
            "AlgorithmError: rank 0 on algo-1: exit code 2: ddp.py: error: unrecognized arguments: --epoch",
            "ERROR",
        ),
        ("AlgorithmError: SystemExit: 2, raised at train.py:7, exit code: 2", "USER"),
        ("AlgorithmError: BufferError: not enough capacity for 4096 items, exit code: 1", "USER"),
        (
            "AlgorithmError: An error occurred (InternalError): We encountered an internal error., exit code: 1",
            "USER",
        ),
        ("ClientError: Data download failed: no such key", "USER"),
        ("Something quite new", "UNKNOWN"),
    ],
)
def test_a_failure_has_the_class_of_its_words(reason, name):
    verdict = classify_end(job(Status.FAILED, reason))
    assert (verdict.ending.name, verdict.reason) == (name, reason)


def test_a_job_that_its_cap_ended_is_not_tried_again():
    answer = {
        "StoppingCondition": {"MaxRuntimeInSeconds": 3480},
        "Environment": {"RAYSM_MAX_COST": "5", "RAYSM_MAX_COST_S": "3600"},
    }
    ended = replace(
        job(Status.STOPPED, secondary=SecondaryStatus.MAX_RUNTIME_EXCEEDED), answer=answer
    )
    verdict = classify_end(ended)
    assert (verdict.ending.name, verdict.ending.row_state) == ("BUDGET", RowState.FAILED)
    assert verdict.reason == "stopped: its budget of 5 USD is used"


@pytest.mark.parametrize(
    ("secondary", "phases", "wish", "name"),
    [
        (SecondaryStatus.MAX_RUNTIME_EXCEEDED, ("Training",), "", "TIME"),
        (SecondaryStatus.MAX_WAIT_EXCEEDED, ("Pending",), "", "CAPACITY"),
        # Batch's documentation has jobs without capacity end so.
        (SecondaryStatus.STOPPED, ("Starting", "Pending"), "", "CAPACITY"),
        (SecondaryStatus.STOPPED, ("Starting", "Pending", "Stopping"), "", "STOPPED"),
        (SecondaryStatus.STOPPED, ("Pending", "Stopping"), "patience", "CAPACITY"),
        (SecondaryStatus.STOPPED, ("Pending", "Training", "Stopping"), "user", "STOPPED"),
    ],
)
def test_a_stop_has_the_class_of_what_came_before_it(secondary, phases, wish, name):
    assert (
        classify_end(job(Status.STOPPED, secondary=secondary, phases=phases), wish).ending.name
        == name
    )


def test_a_quota_is_learned_from_the_words_of_its_refusal():
    assert parse_quota(LIMIT) == (2, 1)
    assert parse_quota("no such words") is None


def test_two_jobs_fail_for_one_reason_whatever_their_hosts_and_numbers():
    first = "AlgorithmError: KeyError: 'lr' at algo-1:1234, exit code: 1\nmore"
    assert reason_key(first) == reason_key(
        "AlgorithmError: KeyError: 'lr' at algo-2:99, exit code: 1"
    )
    assert reason_key(first) != reason_key("AlgorithmError: MemoryError")
    assert reason_key("") == ""


def test_a_long_reason_keeps_its_last_line():
    reason = "ValueError: first line\n" + "x" * 2000 + "\nKeyError: 'zip'"
    short = shortened(reason, 100)
    assert len(short) == 100
    assert short.startswith("ValueError: first line … xxx")
    assert short.endswith("\nKeyError: 'zip'")
    assert shortened("short", 100) == "short"


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("AlgorithmError: KeyError: 'lr', exit code: 1", "ERROR"),
        ("AlgorithmError: , exit code: 137", "USER"),
        ("ClientError: Data download failed", "USER"),
        ("InternalServerError: We encountered an internal error. Please try again.", "SERVICE"),
    ],
)
def test_an_end_that_the_service_tells_keeps_its_class_though_people_read_less_of_it(reason, name):
    answer = {
        "TrainingJobName": "j",
        "TrainingJobArn": "",
        "TrainingJobStatus": "Failed",
        "FailureReason": reason,
    }
    assert classify_end(read(TRAINING, answer)).ending.name == name


def attempt(**changes):
    values = {
        "row_key": "t", "number": 1, "name": "a1", "region": "r", "instance_type": "ml", "count": 2, "sent_s": 1.0,
        "usd_per_hour": 36.0, "ending": "OK",
    }  # fmt: skip
    return Attempt(**values | changes)


@pytest.mark.parametrize(
    "unknown", [{"usd_per_hour": None, "billable_s": 5.0}, {"billable_s": None}]
)
def test_what_is_not_known_is_counted_as_unknown(store, unknown):
    add_cost(store, attempt(**unknown))
    assert (store.costs.money(0).spent_usd, store.costs.money(0).unpriced) == (0, 1)


def test_a_refused_one_that_may_still_land_is_at_stake_until_it_cannot(store):
    store.attempts.insert(attempt(state=AttemptState.ENDED, max_runtime_s=3_600, watch_s=900.0))
    assert store.costs.money(899).at_stake_usd == pytest.approx(
        72.0 + STOP_GRACE_S * 2 * 36.0 / 3600
    )
    assert store.costs.money(901).at_stake_usd == 0


def test_work_that_an_interruption_took_away_is_counted_beside_and_no_waste(store):
    add_cost(
        store, attempt(billable_s=100.0, training_s=400.0, interruptions=1, interrupted_s=100.0)
    )
    counted = store.costs.money(0)
    assert (counted.spent_usd, counted.wasted_usd, counted.again_usd) == (
        pytest.approx(2.0),
        0,
        pytest.approx(0.5),
    )
    # What brought nothing at all is waste as a whole, once.
    add_cost(store, attempt(billable_s=100.0, training_s=400.0, interrupted_s=100.0, ending="USER"))
    assert (store.costs.money(0).wasted_usd, store.costs.money(0).again_usd) == (
        pytest.approx(2.0),
        pytest.approx(0.5),
    )


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path, rows=1, rules=Rules(retries=1))
    bench.step()
    return bench


def end(bench, name, now=None, reason="why"):
    (attempt,) = bench.store.attempts.open()
    with bench.store.database.transaction("end"):
        end_without_job(
            bench.store,
            attempt,
            Verdict(ending=ENDINGS[name], reason=reason),
            now or bench.clock.now,
        )
    return bench.store.rows.get("row-0")


def test_a_wish_to_stop_is_not_answered_by_another_try(bench):
    bench.store.database.connection.execute("UPDATE attempt SET wish = 'user'")
    assert end(bench, "USER").state is RowState.STOPPED


@pytest.mark.parametrize(
    ("reason", "jobs"),
    [
        ("AlgorithmError: ValueError: no such layer, exit code: 1", 1),
        ("AlgorithmError: RuntimeError: CUDA error, exit code: 1", 3),
        ("AlgorithmError: SIGKILL, exit code: 137", 3),
    ],
)
def test_an_error_that_the_program_would_raise_again_runs_one_job(tmp_path, reason, jobs):
    region = Behaviour(start_s=60, run_s=30, fails={"row-0": reason})
    bench = Bench(tmp_path, 1, regions={"us-east-1": region}, rules=Rules(retries=2, brake=0))
    bench.run()
    assert bench.store.rows.get("row-0").state is RowState.FAILED
    assert len(bench.store.attempts.of_row("row-0")) == jobs


@pytest.mark.parametrize("retries", [0, 2])
def test_who_mends_the_program_and_tries_again_is_not_stopped_by_the_failures_before(
    tmp_path, retries
):
    region = Behaviour(start_s=60, run_s=30, fails={f"row-{number}": USER for number in range(6)})
    bench = Bench(
        tmp_path, rows=6, regions={"us-east-1": region}, rules=Rules(brake=3, retries=retries)
    )
    bench.run()
    assert (bench.store.grid().state, len(bench.store.attempts.all())) == ("paused", 3)
    bench.store.requeue(RETRYABLE_STATES, bench.clock.now)
    # Not mended after all: the first jobs say so once more.
    bench.run()
    assert (bench.store.grid().state, len(bench.store.attempts.all())) == ("paused", 6)
    region.fails.clear()
    bench.store.requeue(RETRYABLE_STATES, bench.clock.now)
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("closed", {"done": 6})


@pytest.mark.parametrize(
    "rules", [Rules(brake=3, retries=2), Rules(max_cost=1.0)], ids=["brake", "budget"]
)
def test_a_wish_to_stop_that_comes_as_the_grid_is_paused_is_not_lost(tmp_path, rules):
    def stops(point):
        # As raysm grid stop does, in a process of its own.
        if point == "before grid paused":
            user = Store(tmp_path / "g.db")
            user.change_state("stopping", 0.0, fenced=False)
            user.close()

    region = Behaviour(start_s=60, run_s=30, fails={f"row-{number}": USER for number in range(6)})
    bench = Bench(tmp_path, rows=6, regions={"us-east-1": region}, rules=rules, kill=stops)
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("closed", {"stopped": 6})


def test_who_goes_on_after_the_first_failures_is_not_stopped_by_them_again(tmp_path):
    region = Behaviour(start_s=60, run_s=30, fails={f"row-{number}": USER for number in range(3)})
    bench = Bench(tmp_path, rows=6, regions={"us-east-1": region}, rules=Rules(brake=3, retries=0))
    bench.run()
    assert bench.store.grid().state == "paused"
    # As raysm grid run --go-on does, before it has the lease.
    user = Store(tmp_path / "g.db")
    user.go_on(bench.clock.now)
    user.close()
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("closed", {"failed": 3, "done": 3})


@pytest.mark.parametrize(
    "region",
    [Behaviour(capacity=0), Behaviour(refusal=DENIED)],
    ids=["a place that refuses", "a region that denies"],
)
def test_rows_that_were_given_up_run_when_they_are_tried_again(tmp_path, region):
    bench = Bench(tmp_path, regions={"us-east-1": region}, rows=rows_in(None, 2), rules=PATIENT)
    bench.run()
    assert bench.states() == {"failed": 2}
    region.capacity = 10**9
    region.refusal = None
    bench.store.requeue(RETRYABLE_STATES, bench.clock.now)
    took_s = bench.run()
    assert bench.states() == {"done": 2}
    assert took_s < HOUR_S


def test_a_job_that_completes_although_the_user_stops_the_grid_is_done(tmp_path):
    bench = Bench(tmp_path, rows=2, rules=Rules(brake=0, parallel=1))
    bench.step()
    for region in bench.regions.values():
        # It completes before the Stop takes effect.
        region.stop = lambda name: None
    bench.store.change_state("stopping", bench.clock.now, fenced=False)
    bench.run()
    assert bench.states() == {"done": 1, "stopped": 1}


def test_a_row_whose_checkpoints_are_in_a_removed_region_says_so(tmp_path):
    bench = Bench(tmp_path, rows=1)
    bench.step()
    (attempt,) = bench.store.attempts.open()
    with bench.store.database.transaction("end"):
        end_without_job(
            bench.store,
            attempt,
            Verdict(ending=ENDINGS["TIME"], reason="MaxRuntimeExceeded"),
            bench.clock.now,
        )
    bench.leave(attempt.region)
    bench.run()
    assert bench.states() == {"impossible": 1}
    assert f"its checkpoints are in {attempt.region}" in bench.store.rows.get("row-0").reason


def test_a_paused_grid_is_watched_until_no_orphaned_job_can_appear(tmp_path):
    region = Behaviour(late=1.0, late_s=100, run_s=50_000)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": region}, rules=Rules(brake=1))
    bench.step()
    # The repeated call is refused, which pauses the grid, and then the first one is carried out.
    region.late = 0.0
    region.refusal = ServiceError("no", code="ValidationException")

    def sleep(seconds):
        bench.clock.now += seconds

    Running(bench.store, bench.controller, bench.limiter, 0, Clock()).run(
        sleep, lambda: bench.clock.now
    )
    assert bench.store.grid().state == "paused"
    assert [life.asked_s is not None for life in bench.regions["us-east-1"].lives.values()] == [
        True
    ]
    bench.judge()

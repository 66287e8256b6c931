"""A worker's policy, tried purely: joining, restarting Ray, each way in which it ends; and every order of events."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raysm.core.request import Cluster
from raysm.errors import ClusterNotFormed, InstanceLost, RayFailed
from raysm.instance import lifecycle
from raysm.instance.worker_policy import (
    MAX_RESTARTS,
    SERVICE_GRACE_S,
    STOP_MARGIN_S,
    WorkerPolicy,
    WorkerRules,
)

GCS = "10.0.0.1:6379"
JOINED = (lifecycle.Connected("10.0.0.1"), lifecycle.Invited(6379), lifecycle.GcsReachable(GCS))
RAY_DIED = lifecycle.RayEnded("raylet [exit code=-9]")


class Life:
    """A worker's policy, told one event after the other; keeps all that it has decided."""

    def __init__(self, *, grace_s=100.0, **cluster):
        rules = WorkerRules(
            name="algo-2",
            head="algo-1",
            cluster=Cluster(**({"count": 2} | cluster)),
            grace_s=grace_s,
        )
        self.now_s = 1000.0
        self.policy = WorkerPolicy.begin(rules, self.now_s)
        self.decisions = ()

    def tell(self, *events, after_s=0.0):
        self.now_s += after_s
        decided = ()
        for event in events:
            self.policy, decisions = self.policy.take(event, self.now_s)
            decided += decisions
        self.decisions += decided
        return decided

    @property
    def causes(self):
        return [
            decision.cause for decision in self.decisions if isinstance(decision, lifecycle.End)
        ]

    @property
    def cause(self):
        (cause,) = self.causes
        return cause


def test_a_worker_whose_head_never_comes_says_at_the_deadline_what_was_wrong_last():
    life = Life(join_timeout_s=10)
    life.tell(
        lifecycle.Delayed("the name algo-1 does not resolve"),
        lifecycle.Delayed("algo-1 refuses connections on port 7777"),
    )
    life.tell(lifecycle.Tick(), after_s=10)
    assert isinstance(life.cause, ClusterNotFormed)
    assert str(life.cause) == (
        "algo-2 did not join the head algo-1 within 10 s: algo-1 refuses connections on port 7777"
    )


def test_a_dead_ray_node_is_started_again_three_times_and_the_head_is_told_each_time():
    life = Life()
    life.tell(*JOINED)
    for restart in range(1, MAX_RESTARTS + 1):
        text = f"its Ray node ended (raylet [exit code=-9]); restart {restart} of 3"
        assert life.tell(RAY_DIED) == (
            lifecycle.Remark(f"algo-2: {text}"),
            lifecycle.TellHead(text),
            lifecycle.StartRay(),
            lifecycle.JoinRay(GCS),
        )
    life.tell(RAY_DIED)
    assert isinstance(life.cause, RayFailed)
    assert str(life.cause) == "Ray on algo-2 ended for the 4th time: raylet [exit code=-9]"


def test_a_worker_that_loses_its_head_fails_and_has_nobody_to_say_goodbye_to():
    life = Life()
    life.tell(*JOINED, lifecycle.Lost("algo-1", "said nothing for 30 s"))
    assert isinstance(life.cause, InstanceLost)
    assert str(life.cause) == "the head algo-1 was lost: it said nothing for 30 s"
    assert life.policy.head_lost


@pytest.mark.parametrize(
    ("grace_s", "ends_s"), [(30.0, 30 + STOP_MARGIN_S), (115.0, SERVICE_GRACE_S)]
)
def test_a_worker_that_is_to_stop_ends_by_itself_when_the_head_s_grace_is_over_and_before_it_is_killed(
    grace_s, ends_s
):
    life = Life(grace_s=grace_s)
    life.tell(*JOINED, lifecycle.StopRequested())
    life.tell(lifecycle.Tick(), after_s=ends_s - 1)
    assert not life.causes
    life.tell(lifecycle.Tick(), after_s=1)
    assert life.cause == lifecycle.Stopped()


def test_a_second_request_to_stop_does_not_move_the_end():
    life = Life(grace_s=30.0)
    life.tell(*JOINED, lifecycle.StopRequested())
    ends_at_s = life.policy.wakes_at_s
    life.tell(lifecycle.StopRequested(), after_s=5)
    assert life.policy.wakes_at_s == ends_at_s


def test_a_worker_that_reaches_the_gcs_while_it_stops_still_ends_by_itself():
    life = Life(grace_s=30.0)
    life.tell(
        lifecycle.Connected("10.0.0.1"), lifecycle.StopRequested(), lifecycle.GcsReachable(GCS)
    )
    life.tell(lifecycle.Tick(), after_s=30 + STOP_MARGIN_S)
    assert life.cause == lifecycle.Stopped()


def test_a_worker_that_is_to_stop_does_not_fail_if_its_head_ends_first():
    life = Life()
    life.tell(*JOINED, lifecycle.StopRequested(), lifecycle.Lost("algo-1", "closed its connection"))
    assert life.cause == lifecycle.Stopped()
    assert life.policy.head_lost


def test_a_worker_that_has_reached_the_gcs_leaves_the_deadline_for_joining_to_the_head():
    life = Life(join_timeout_s=10)
    life.tell(*JOINED)
    life.tell(lifecycle.Tick(), after_s=1000)
    assert not life.causes


def test_a_worker_that_comes_too_late_fails_no_job_that_can_do_with_fewer():
    life = Life(join_timeout_s=10, min_instances=1)
    life.tell(lifecycle.Tick(), after_s=10)
    assert life.cause == lifecycle.Done()


def test_a_worker_that_gives_up_ray_tells_a_head_that_goes_on_without_it():
    life = Life(on_instance_loss="continue")
    life.tell(*JOINED, *[RAY_DIED] * MAX_RESTARTS)
    decided = life.tell(RAY_DIED)
    assert (
        lifecycle.TellHead(
            "Ray on algo-2 ended for the 4th time: raylet [exit code=-9]", for_good=True
        )
        in decided
    )
    assert life.cause == lifecycle.Done()


def test_a_worker_that_the_head_ends_says_why_and_says_goodbye():
    life = Life()
    life.tell(*JOINED)
    decided = life.tell(lifecycle.JobEnded("ValueError: no"))
    assert lifecycle.Remark("the head algo-1 ended the job: ValueError: no") in decided
    assert life.cause == lifecycle.Done()
    assert not life.policy.head_lost


def test_a_failure_of_the_bootstrap_itself_ends_a_worker():
    life = Life()
    error = OSError("no room")
    life.tell(*JOINED, lifecycle.Failed(error))
    assert life.cause is error


class Orders(RuleBasedStateMachine):
    """A worker to which everything may happen at any time; after each event the promises hold."""

    @initialize(min_instances=st.sampled_from([None, 1]))
    def start(self, min_instances):
        self.life = Life(join_timeout_s=60, grace_s=10, min_instances=min_instances)

    @rule()
    def it_is_connected(self):
        if not self.life.policy.is_connected:
            self.life.tell(lifecycle.Connected("10.0.0.1"))

    @rule()
    def it_is_invited(self):
        if self.life.policy.is_connected:
            self.life.tell(lifecycle.Invited(6379))

    @rule()
    def the_gcs_is_reachable(self):
        if self.life.policy.is_connected and not self.life.policy.gcs_address:
            self.life.tell(lifecycle.GcsReachable(GCS))

    @rule()
    def its_ray_dies(self):
        if self.life.policy.is_connected:
            self.life.tell(RAY_DIED)

    @rule(reason=st.sampled_from(["", "ValueError: no"]))
    def the_job_ends(self, reason):
        if self.life.policy.is_connected:
            before = list(self.life.causes)
            self.life.tell(lifecycle.JobEnded(reason))
            assert self.life.causes == (before or [lifecycle.Done()])

    @rule()
    def the_head_is_lost(self):
        if self.life.policy.is_connected:
            self.life.tell(lifecycle.Lost("algo-1", "closed its connection"))
            assert self.life.causes

    @rule()
    def a_stop_is_asked_for(self):
        before = list(self.life.causes)
        self.life.tell(lifecycle.StopRequested())
        assert before or self.life.policy.is_connected or self.life.cause == lifecycle.Stopped()

    @rule(after_s=st.sampled_from([0.0, 5.0, 25.0, 70.0]))
    def time_passes(self, after_s):
        due_s = self.life.policy.wakes_at_s
        self.life.tell(lifecycle.Tick(), after_s=after_s)
        # A deadline always decides: nobody waits for a head, or for its word, for ever.
        assert due_s is None or self.life.now_s < due_s or self.life.causes

    @invariant()
    def it_ends_once_and_restarts_ray_at_most_three_times(self):
        if not hasattr(self, "life"):
            return
        ends = [isinstance(decision, lifecycle.End) for decision in self.life.decisions]
        assert not any(ends[:-1])
        starts = [
            decision for decision in self.life.decisions if isinstance(decision, lifecycle.StartRay)
        ]
        joins = [
            decision for decision in self.life.decisions if isinstance(decision, lifecycle.JoinRay)
        ]
        assert len(joins) <= len(starts) <= 1 + MAX_RESTARTS
        assert len(starts) == (
            1 + self.life.policy.restarts if self.life.policy.is_connected else 0
        )
        # Whichever was started last is told whom to join, if anybody knows.
        if self.life.policy.gcs_address:
            assert [
                each
                for each in self.life.decisions
                if isinstance(each, lifecycle.StartRay | lifecycle.JoinRay)
            ][-1] == lifecycle.JoinRay(GCS)

    @invariant()
    def nobody_who_was_asked_to_stop_fails_for_want_of_a_head(self):
        if hasattr(self, "life") and self.life.policy.is_stopping and self.life.causes:
            assert isinstance(self.life.cause, (lifecycle.Stopped, lifecycle.Done, RayFailed))


Orders.TestCase.settings = settings(
    max_examples=100, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestOrders = Orders.TestCase

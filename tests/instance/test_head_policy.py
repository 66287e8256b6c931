"""The head's policy, tried purely: each row of the life cycle's table, and every order of events."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raysm.core.protocol.result import Failure
from raysm.core.request import Cluster
from raysm.errors import ClusterNotFormed, InstanceLost, InvalidPayload, JobStalled, RayFailed
from raysm.instance import lifecycle
from raysm.instance.head_policy import AGAIN_S, VERDICT_S, HeadPolicy, Phase, Rules

OWN = Failure(error_type="ValueError", message="no such column")
OF_RAY = Failure(error_type="ray.exceptions.ActorDiedError", message="its node is gone")


def hosts(count):
    return tuple(f"algo-{rank + 1}" for rank in range(count))


def node(host, number=1):
    return lifecycle.Node(f"{host}/{number}", f"10.0.0.{host.removeprefix('algo-')}")


def nodes(*names):
    return lifecycle.NodesChanged({host: node(host) for host in names})


class Life:
    """A head's policy, told one event after the other; keeps all that it has decided."""

    def __init__(
        self,
        count=3,
        *,
        ahead=False,
        grace_s=100.0,
        join_timeout_s=600.0,
        on_stall="warn",
        max_restarts=0,
        **cluster,
    ):
        shape = Cluster(count=count, join_timeout_s=join_timeout_s, **cluster)
        self.rules = Rules(
            hosts=hosts(count),
            cluster=shape,
            grace_s=grace_s,
            starts_ahead=ahead,
            on_stall=on_stall,
            max_restarts=max_restarts,
        )
        self.now_s = 1000.0
        self.policy, self.decisions = HeadPolicy.begin(self.rules, self.now_s)

    def tell(self, *events, after_s=0.0):
        """Tell ``events``; return what is decided about them."""
        self.now_s += after_s
        decided = ()
        for event in events:
            self.policy, decisions = self.policy.take(event, self.now_s)
            decided += decisions
        self.decisions += decided
        return decided

    def form(self):
        """Let everybody join."""
        self.tell(
            lifecycle.GcsAnswers(),
            *map(lifecycle.Joined, self.rules.hosts[1:]),
            nodes(*self.rules.hosts),
        )
        return self

    @property
    def causes(self):
        return [
            decision.cause for decision in self.decisions if isinstance(decision, lifecycle.End)
        ]

    @property
    def cause(self):
        (cause,) = self.causes
        return cause

    @property
    def begins(self):
        return [
            decision for decision in self.decisions if isinstance(decision, lifecycle.BeginWork)
        ]

    def said(self, *names):
        states = [
            decision for decision in self.decisions if isinstance(decision, lifecycle.Announce)
        ]
        return [(state.name, state.host) for state in states if not names or state.name in names]

    def remarks(self):
        return [
            decision.text for decision in self.decisions if isinstance(decision, lifecycle.Remark)
        ]


# Forming


def test_the_driver_begins_when_the_last_instance_has_joined_and_its_ray_node_is_registered():
    life = Life(3)
    life.tell(
        lifecycle.GcsAnswers(),
        lifecycle.Joined("algo-2"),
        lifecycle.Joined("algo-3"),
        nodes("algo-1", "algo-2"),
    )
    assert not life.begins
    life.tell(nodes("algo-1", "algo-2", "algo-3"))
    assert life.begins == [lifecycle.BeginWork("10.0.0.1")]
    assert life.said() == [
        ("joined", "algo-1"),
        ("joined", "algo-2"),
        ("joined", "algo-3"),
        ("formed", "algo-1"),
    ]


def test_only_a_driver_that_prepares_ahead_starts_before_the_cluster_is_formed():
    assert lifecycle.StartDriver() in Life(ahead=True).decisions
    assert lifecycle.StartDriver() not in Life().decisions


def test_workers_are_invited_to_ray_as_soon_as_both_they_and_the_gcs_are_there():
    life = Life(3)
    assert lifecycle.InviteToRay(frozenset({"algo-2"})) not in life.tell(lifecycle.Joined("algo-2"))
    assert lifecycle.InviteToRay(frozenset({"algo-2"})) in life.tell(lifecycle.GcsAnswers())
    assert lifecycle.InviteToRay(frozenset({"algo-3"})) in life.tell(lifecycle.Joined("algo-3"))


def test_the_gcs_is_asked_for_its_nodes_while_the_cluster_forms_and_while_a_node_is_awaited():
    life = Life(2)
    watched = [life.policy.watches_nodes]
    for events in (
        [lifecycle.GcsAnswers()],
        [lifecycle.Joined("algo-2"), nodes("algo-1", "algo-2")],
        [lifecycle.RayLost("algo-2", "restart 1 of 3")],
        [lifecycle.DriverEnded(0)],
    ):
        life.tell(*events)
        watched.append(life.policy.watches_nodes)
    assert watched == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (lifecycle.Mismatch("algo-2", "algo-2 does not fit"), InvalidPayload),
        (lifecycle.Failed(OSError("no room")), OSError),
    ],
)
def test_a_worker_that_can_never_join_and_a_failure_of_the_bootstrap_end_the_job(event, error):
    life = Life(2)
    life.tell(event)
    assert isinstance(life.cause, error)


def test_each_instance_that_joins_is_counted():
    life = Life(3)
    life.tell(lifecycle.Joined("algo-3"), lifecycle.Joined("algo-2"))
    joined = [
        each
        for each in life.decisions
        if isinstance(each, lifecycle.Announce) and each.name == "joined"
    ]
    assert [(each.host, each.count, each.total) for each in joined] == [
        ("algo-1", 1, 3),
        ("algo-3", 2, 3),
        ("algo-2", 3, 3),
    ]


def test_a_ray_node_whose_instance_is_lost_is_not_counted():
    life = Life(3, min_instances=2)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), lifecycle.Joined("algo-3"))
    life.tell(
        lifecycle.Lost("algo-3", "closed its connection"), nodes("algo-1", "algo-2", "algo-3")
    )
    formed = next(
        each
        for each in life.decisions
        if isinstance(each, lifecycle.Announce) and each.name == "formed"
    )
    assert formed.count == 2


@pytest.mark.parametrize(("total", "every"), [(1000, 20), (5000, 100)])
def test_of_many_instances_only_some_are_announced_and_each_of_the_last(total, every):
    life = Life(total)
    life.tell(*map(lifecycle.Joined, hosts(total)[1:]))
    counts = [
        each.count
        for each in life.decisions
        if isinstance(each, lifecycle.Announce) and each.name == "joined"
    ]
    last = range(total - 19, total + 1)
    assert counts == [1, *range(every, last[0], every), *last]


# An instance has not joined by the deadline


def test_a_missing_instance_is_named_at_the_deadline():
    life = Life(3, join_timeout_s=10)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), nodes("algo-1", "algo-2"))
    life.tell(lifecycle.Tick(), after_s=9.9)
    assert not life.causes
    life.tell(lifecycle.Tick(), after_s=0.1)
    assert isinstance(life.cause, ClusterNotFormed)
    assert str(life.cause) == "2 of 3 instances joined within 10 s; missing: algo-3"


def test_work_begins_when_the_gpus_of_all_instances_are_checked():
    life = Life(2)
    life.tell(lifecycle.Checking("algo-1"), lifecycle.Joined("algo-2"))
    life.tell(lifecycle.Checking("algo-2"), lifecycle.GcsAnswers(), nodes("algo-1", "algo-2"))
    assert not life.begins
    life.tell(lifecycle.Checked("algo-1"))
    assert not life.begins
    life.tell(lifecycle.Checked("algo-2"))
    assert life.begins


def test_the_check_of_gpus_does_not_count_as_time_to_join():
    life = Life(2, join_timeout_s=10)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), lifecycle.Checking("algo-2"))
    life.tell(nodes("algo-1", "algo-2"))
    life.tell(lifecycle.Tick(), after_s=10)
    life.tell(lifecycle.Tick(), after_s=1)
    assert life.remarks() == ["the work begins when 1 instance more has checked the GPUs: algo-2"]
    assert not life.begins
    life.tell(lifecycle.Checked("algo-2"), after_s=100)
    assert life.begins
    assert not life.causes


def test_job_that_may_begin_with_fewer_instances_waits_for_the_checks_of_those_that_joined():
    life = Life(3, join_timeout_s=10, min_instances=2)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), lifecycle.Checking("algo-2"))
    life.tell(nodes("algo-1", "algo-2"))
    life.tell(lifecycle.Tick(), after_s=10)
    assert not life.begins
    life.tell(lifecycle.Checked("algo-2"), after_s=1)
    assert life.begins
    assert life.remarks()[-1] == (
        "2 of 3 instances joined within 10 s; missing: algo-3; going on, as min_instances=2 says"
    )


def test_instance_that_is_lost_while_it_checks_its_gpus_after_the_deadline_ends_the_job():
    life = Life(2, join_timeout_s=10)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), lifecycle.Checking("algo-2"))
    life.tell(nodes("algo-1", "algo-2"))
    life.tell(lifecycle.Tick(), after_s=10)
    life.tell(lifecycle.Lost("algo-2", "GPU 0 fails its first matrix product"))
    assert isinstance(life.cause, InstanceLost)
    assert not life.begins


def test_a_job_runs_with_fewer_instances_only_if_min_instances_says_so():
    life = Life(3, join_timeout_s=10, min_instances=2)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), nodes("algo-1", "algo-2"))
    life.tell(lifecycle.Tick(), after_s=10)
    assert life.begins
    formed = next(
        each
        for each in life.decisions
        if isinstance(each, lifecycle.Announce) and each.name == "formed"
    )
    assert (formed.count, formed.total) == (2, 3)
    assert life.remarks() == [
        "2 of 3 instances joined within 10 s; missing: algo-3; going on, as min_instances=2 says"
    ]


@pytest.mark.parametrize(
    ("present", "coordinator_only", "is_enough"),
    [(1, False, True), (1, True, False), (2, True, True)],
)
def test_a_head_that_only_coordinates_needs_a_worker_at_the_deadline(
    present, coordinator_only, is_enough
):
    life = Life(3, join_timeout_s=10, min_instances=1, coordinator_only=coordinator_only)
    joined = hosts(3)[:present]
    life.tell(lifecycle.GcsAnswers(), *map(lifecycle.Joined, joined[1:]), nodes(*joined))
    life.tell(lifecycle.Tick(), after_s=10)
    assert bool(life.begins) == is_enough
    assert bool(life.causes) != is_enough


def test_no_job_runs_without_the_ray_node_of_its_head():
    life = Life(3, join_timeout_s=10, min_instances=2)
    workers = hosts(3)[1:]
    life.tell(lifecycle.GcsAnswers(), *map(lifecycle.Joined, workers), nodes(*workers))
    life.tell(lifecycle.Tick(), after_s=10)
    assert isinstance(life.cause, ClusterNotFormed)
    assert "without a registered Ray node: algo-1" in str(life.cause)


# A raylet dies but its bootstrap lives


def test_a_restarted_ray_node_rejoins_when_another_node_of_that_host_is_registered():
    life = Life(2).form()
    life.tell(lifecycle.RayLost("algo-2", "its Ray node ended; restart 1 of 3"))
    life.tell(nodes("algo-1", "algo-2"))  # the GCS has not seen yet that it is dead
    assert life.said("lost", "rejoined") == [("lost", "algo-2")]
    life.tell(
        nodes("algo-1"),
        lifecycle.NodesChanged({"algo-1": node("algo-1"), "algo-2": node("algo-2", 2)}),
    )
    assert life.said("lost", "rejoined") == [("lost", "algo-2"), ("rejoined", "algo-2")]
    assert not life.policy.restarting
    assert not life.causes


# An instance is lost


def test_a_worker_that_leaves_before_the_job_is_over_is_a_loss():
    life = Life(2).form()
    life.tell(lifecycle.Left("algo-2"))
    assert isinstance(life.cause, InstanceLost)


def test_a_worker_that_reports_its_failure_and_then_closes_its_connection_is_lost_once():
    life = Life(3, on_instance_loss="continue").form()
    life.tell(lifecycle.Lost("algo-2", "no room"), lifecycle.Left("algo-2"))
    assert life.said("lost") == [("lost", "algo-2")]
    assert not life.causes


@pytest.mark.parametrize(("coordinator_only", "is_fatal"), [(False, False), (True, True)])
def test_the_last_worker_may_be_lost_unless_the_head_only_coordinates(coordinator_only, is_fatal):
    life = Life(2, on_instance_loss="continue", coordinator_only=coordinator_only).form()
    life.tell(lifecycle.Lost("algo-2", "closed its connection"))
    assert [type(cause) for cause in life.causes] == [InstanceLost] * is_fatal


def test_a_job_that_may_lose_instances_still_needs_all_of_them_to_begin():
    life = Life(3, on_instance_loss="continue")
    life.tell(lifecycle.Joined("algo-2"), lifecycle.Lost("algo-2", "closed its connection"))
    assert isinstance(life.cause, InstanceLost)


def test_an_instance_that_came_after_the_work_began_may_be_lost():
    life = Life(3, join_timeout_s=10, min_instances=2)
    life.tell(lifecycle.GcsAnswers(), lifecycle.Joined("algo-2"), nodes("algo-1", "algo-2"))
    life.tell(lifecycle.Tick(), after_s=10)
    life.tell(lifecycle.Joined("algo-3"), lifecycle.Lost("algo-3", "closed its connection"))
    assert not life.causes
    life.tell(lifecycle.Lost("algo-2", "closed its connection"))
    assert isinstance(life.cause, InstanceLost)


def test_only_the_lost_instance_is_not_awaited_any_more():
    life = Life(3, on_instance_loss="continue").form()
    life.tell(
        lifecycle.RayLost("algo-2", "restart 1 of 3"), lifecycle.RayLost("algo-3", "restart 1 of 3")
    )
    life.tell(lifecycle.Lost("algo-2", "closed its connection"))
    life.tell(lifecycle.NodesChanged({"algo-1": node("algo-1"), "algo-3": node("algo-3", 2)}))
    assert life.said("rejoined") == [("rejoined", "algo-3")]
    assert not life.policy.watches_nodes


# The driver ends


@pytest.mark.parametrize(
    "end", [lifecycle.DriverEnded(0), lifecycle.DriverEnded(3, OWN), lifecycle.DriverEnded(-9, OWN)]
)
def test_a_driver_that_says_why_it_ended_or_ends_well_ends_the_job_at_once(end):
    life = Life(2).form()
    life.tell(end)
    assert life.cause == end


@pytest.mark.parametrize(
    "end", [lifecycle.DriverEnded(1), lifecycle.DriverEnded(-9), lifecycle.DriverEnded(1, OF_RAY)]
)
def test_a_driver_that_may_have_died_of_the_cluster_is_blamed_only_when_no_other_news_can_be_on_its_way(
    end,
):
    life = Life(2).form()
    life.tell(end)
    life.tell(lifecycle.Tick(), after_s=VERDICT_S / 2)
    assert not life.causes
    life.tell(lifecycle.Tick(), after_s=VERDICT_S / 2)
    assert life.cause == end


@pytest.mark.parametrize(
    "news", [lifecycle.RayEnded("raylet died"), lifecycle.Lost("algo-2", "closed its connection")]
)
def test_what_the_driver_died_of_is_the_reason_though_it_is_known_after_its_end(news):
    life = Life(2).form()
    life.tell(lifecycle.DriverEnded(1, OF_RAY))
    life.tell(news, after_s=1)
    assert isinstance(life.cause, (RayFailed, InstanceLost))


def test_a_silent_worker_is_waited_for_until_it_speaks_or_is_lost():
    life = Life(2).form()
    life.tell(lifecycle.DriverEnded(1, OF_RAY))
    life.tell(lifecycle.Tick(frozenset({"algo-2"})), after_s=VERDICT_S)
    assert not life.causes
    # Not before: nobody polls without a pause.
    assert life.policy.wakes_at_s == life.now_s + AGAIN_S
    life.tell(lifecycle.Lost("algo-2", "said nothing for 8 s"), after_s=8)
    assert str(life.cause) == "algo-2 lost: said nothing for 8 s"


@pytest.mark.parametrize(("status", "cause"), [(0, ClusterNotFormed), (3, lifecycle.DriverEnded)])
def test_a_driver_that_ends_well_before_the_cluster_is_formed_has_done_nothing(status, cause):
    life = Life(2, ahead=True)
    life.tell(lifecycle.DriverEnded(status, OWN if status else None))
    assert isinstance(life.cause, cause)


# SIGTERM


def test_a_stop_before_the_work_began_ends_the_job_at_once():
    life = Life(2)
    life.tell(lifecycle.StopRequested())
    assert life.cause == lifecycle.Stopped()


def test_a_driver_that_does_not_end_within_its_grace_is_ended():
    life = Life(2, grace_s=30).form()
    life.tell(lifecycle.StopRequested())
    life.tell(lifecycle.Tick(), after_s=30)
    assert life.cause == lifecycle.Stopped(in_time=False)


def test_a_stop_after_the_driver_failed_does_not_hide_why():
    life = Life(2).form()
    end = lifecycle.DriverEnded(1)
    life.tell(end, lifecycle.StopRequested())
    life.tell(lifecycle.Tick(), after_s=VERDICT_S)
    assert life.cause == end


def test_a_stop_gives_user_code_its_grace_and_ends_with_the_driver():
    life = Life(2, grace_s=30).form()
    assert lifecycle.TerminateDriver() in life.tell(lifecycle.StopRequested())
    assert life.said("stopping") == [("stopping", "algo-1")]
    life.tell(lifecycle.Tick(), after_s=29)
    assert not life.causes
    life.tell(lifecycle.DriverEnded(0))
    assert life.cause == lifecycle.Stopped(in_time=True)


# Stalls

STALLED = lifecycle.Stalled("rank 0 waits in barrier (a.py:1)", "rank 0 …\n  > a.py:1")
KILLED = lifecycle.DriverEnded(-9)


def test_stall_is_said_with_its_stacks_and_so_is_its_end():
    life = Life().form()
    life.tell(STALLED, lifecycle.Recovered(600.0))
    assert life.said("stalled", "recovered") == [("stalled", "algo-1"), ("recovered", "algo-1")]
    assert STALLED.stacks in life.remarks()
    assert not life.causes


def test_stall_fails_the_job_if_the_request_says_so():
    life = Life(on_stall="fail").form()
    life.tell(STALLED)
    assert isinstance(life.cause, JobStalled)
    assert STALLED.sentence in str(life.cause)
    assert life.said("stalled")


def test_stall_restarts_the_driver_as_often_as_allowed_and_then_fails():
    life = Life(on_stall="restart", max_restarts=2).form()
    for _ in range(2):
        assert lifecycle.KillDriver() in life.tell(STALLED)
        assert life.tell(KILLED) == (lifecycle.RestartDriver(),)
    assert not life.causes
    life.tell(STALLED)
    assert isinstance(life.cause, JobStalled)
    assert "restart 2 of 2" in str(life.cause)


def test_driver_that_was_started_again_ends_the_job_by_its_own_end():
    life = Life(on_stall="restart", max_restarts=2).form()
    life.tell(STALLED, KILLED, lifecycle.DriverEnded(0))
    assert life.cause == lifecycle.DriverEnded(0)


def test_stop_while_the_driver_is_replaced_ends_the_job():
    life = Life(on_stall="restart", max_restarts=2).form()
    life.tell(STALLED, lifecycle.StopRequested(), KILLED)
    assert life.cause == lifecycle.Stopped()


def test_stall_of_a_job_that_stops_is_not_said():
    life = Life(on_stall="fail").form()
    life.tell(lifecycle.StopRequested(), STALLED)
    assert not life.said("stalled")
    assert not life.causes


# Every order of events

COUNT = 4
WORKERS = hosts(COUNT)[1:]
SHAPES = st.fixed_dictionaries(
    {
        "min_instances": st.none() | st.integers(1, COUNT),
        "on_instance_loss": st.sampled_from(["fail", "continue"]),
        "coordinator_only": st.booleans(),
        "ahead": st.booleans(),
    }
)


class Orders(RuleBasedStateMachine):
    """A world of four instances, in which everything may happen at any time; after each event the promises hold."""

    @initialize(shape=SHAPES)
    def start(self, shape):
        self.life = Life(COUNT, join_timeout_s=60, grace_s=10, **shape)
        self.registered = {}
        self.restarts = 0
        self.strangers, self.connected, self.dead = set(WORKERS), set(), {}
        self.driver_runs = shape["ahead"]
        self.causes_before = 0

    def tell(self, *events, after_s=0.0):
        decided = self.life.tell(*events, after_s=after_s)
        self.driver_runs |= any(isinstance(decision, lifecycle.BeginWork) for decision in decided)
        return decided

    def show_nodes(self):
        self.tell(lifecycle.NodesChanged(dict(self.registered)))

    @precondition(lambda self: self.strangers)
    @rule(data=st.data())
    def a_worker_joins(self, data):
        host = data.draw(st.sampled_from(sorted(self.strangers)))
        self.strangers.discard(host)
        self.connected.add(host)
        self.tell(lifecycle.Joined(host))

    @rule()
    def the_gcs_answers(self):
        self.tell(lifecycle.GcsAnswers())

    @rule(host=st.sampled_from(hosts(COUNT)))
    def a_ray_node_registers(self, host):
        if host not in self.dead and host not in self.strangers:
            self.restarts += 1
            self.registered[host] = node(host, self.restarts)
            self.show_nodes()

    @precondition(lambda self: self.connected)
    @rule(data=st.data())
    def a_raylet_dies(self, data):
        host = data.draw(st.sampled_from(sorted(self.connected)))
        ended = bool(self.life.causes)
        self.tell(lifecycle.RayLost(host, "restart 1 of 3"))
        self.registered.pop(host, None)
        self.show_nodes()
        assert ended or not self.life.causes or self.timed_out(), (
            "a raylet that is started again ended the job"
        )

    @precondition(lambda self: self.connected)
    @rule(
        data=st.data(),
        how=st.sampled_from(
            [lifecycle.Left, lambda host: lifecycle.Lost(host, "closed its connection")]
        ),
    )
    def a_worker_is_lost(self, data, how):
        host = data.draw(st.sampled_from(sorted(self.connected)))
        self.connected.discard(host)
        self.dead[host] = True
        self.registered.pop(host, None)
        ended, phase = bool(self.life.causes), self.life.policy.phase
        was_formed, unawaited = self.life.policy.formed, self.life.policy.unawaited
        self.tell(how(host))
        if ended or phase is Phase.STOPPING or self.timed_out():
            return
        assert bool(self.life.causes) == self.is_fatal(host, was_formed, unawaited)
        assert not self.life.causes or host in str(self.life.cause)

    def is_fatal(self, host, was_formed, unawaited):
        """What the request says, in other words than the policy's."""
        cluster = self.life.rules.cluster
        if was_formed:
            at_work = 1 + len(self.connected)
            lone_coordinator = cluster.coordinator_only and at_work == 1
            return lone_coordinator or (
                cluster.on_instance_loss == "fail" and host not in unawaited
            )
        possible = COUNT - len(self.dead)
        return possible < max(cluster.min_instances or COUNT, 2 if cluster.coordinator_only else 1)

    def timed_out(self):
        return bool(self.life.causes) and isinstance(self.life.cause, ClusterNotFormed)

    @precondition(lambda self: self.driver_runs)
    @rule(status=st.sampled_from([0, 1, -9]), failure=st.sampled_from([None, OWN, OF_RAY]))
    def the_driver_ends(self, status, failure):
        self.driver_runs = False
        self.tell(lifecycle.DriverEnded(status, failure if status else None))

    @rule()
    def the_head_s_ray_dies(self):
        quiet = self.life.causes or self.life.policy.phase is Phase.STOPPING
        self.tell(lifecycle.RayEnded("raylet died"))
        assert quiet or isinstance(self.life.cause, RayFailed)

    @rule()
    def a_stop_is_asked_for(self):
        self.tell(lifecycle.StopRequested())

    @rule(after_s=st.sampled_from([0.0, 0.1, 2.0, 15.0, 70.0]), silent=st.booleans())
    def time_passes(self, after_s, silent):
        silent = frozenset(self.connected if silent else ())
        due_s, phase = self.life.policy.wakes_at_s, self.life.policy.phase
        self.tell(lifecycle.Tick(silent), after_s=after_s)
        if due_s is None or self.life.now_s < due_s:
            return
        # A deadline always decides: the cluster is formed or given up, the blame laid, the grace
        # over.
        assert self.life.policy.phase is not phase or (phase is Phase.ATTRIBUTING and silent)

    @invariant()
    def the_first_cause_wins_and_the_job_ends_once(self):
        if not hasattr(self, "life"):
            return
        assert len(self.life.causes) <= 1
        if self.life.causes:
            ends = [isinstance(decision, lifecycle.End) for decision in self.life.decisions]
            assert ends.index(True) == len(ends) - 1, "something was decided after the end"

    @invariant()
    def the_job_never_runs_with_fewer_than_allowed(self):
        if not hasattr(self, "life") or not self.life.begins:
            return
        assert len(self.life.begins) == 1
        formed = next(
            each
            for each in self.life.decisions
            if isinstance(each, lifecycle.Announce) and each.name == "formed"
        )
        cluster = self.life.rules.cluster
        assert formed.count >= (cluster.min_instances or COUNT)
        assert formed.count >= 2 or not cluster.coordinator_only

    @invariant()
    def every_missing_host_is_named(self):
        if (
            not hasattr(self, "life")
            or not self.timed_out()
            or "instances joined" not in str(self.life.cause)
        ):
            return
        policy = self.life.policy
        missing = set(hosts(COUNT)) - set(policy.present)
        assert all(host in str(self.life.cause) for host in missing)
        assert not any(host in str(self.life.cause) for host in policy.present)

    @invariant()
    def the_state_knows_whom_it_waits_for(self):
        if not hasattr(self, "life"):
            return
        policy = self.life.policy
        waits = (Phase.FORMING, Phase.ATTRIBUTING, Phase.STOPPING)
        assert (policy.wakes_at_s is not None) == (policy.phase in waits)
        assert not policy.lost & policy.connected
        assert not policy.lost & policy.restarting.keys()
        assert not (policy.phase is Phase.ENDED and policy.watches_nodes)


Orders.TestCase.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestOrders = Orders.TestCase

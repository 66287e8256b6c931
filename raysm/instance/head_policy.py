"""The head's policy: which instances belong to the cluster, when to give up, and what ends the job.

It has no side effects: a frozen ``HeadPolicy`` takes an event of ``lifecycle`` with its time, and
returns the next ``HeadPolicy`` and decisions, which ``head`` carries out. Tests can therefore try
every order of events in milliseconds.

::

    FORMING ──all instances that are not lost have joined, or enough at the deadline──> WORKING
    FORMING, WORKING ──the driver fails, perhaps because of the cluster──> ATTRIBUTING
    ATTRIBUTING ──cause found, or none──> ENDED
    WORKING ──SIGTERM──> STOPPING ──the driver ends, or its grace period is over──> ENDED
    any phase ──another end of the job──> ENDED, which is final: the first cause becomes the reason
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from raysm.core.protocol.names import counted, listed
from raysm.core.request import Cluster
from raysm.core.request.durations import duration
from raysm.core.request.limits import OnStall
from raysm.errors import ClusterNotFormed, InstanceLost, InvalidPayload, JobStalled, RayFailed
from raysm.instance import lifecycle as life
from raysm.instance.exit_status import blames_cluster

VERDICT_S = 1.5
"""Seconds to wait for the cause of a driver's end, because ``ray start`` checks its processes once
a second."""
AGAIN_S = 0.05
"""Seconds between later checks whether a silent worker has sent a message or is lost."""
MAX_NAMED = 20
MAX_JOINED_LINES = 50
"""Lines of the log about instances that have joined; of more instances, only some and the last ones
have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    hosts: tuple[str, ...]
    cluster: Cluster
    grace_s: float
    starts_ahead: bool
    on_stall: OnStall = "warn"
    max_restarts: int = 0
    """Number of times that the driver is started again after a stall."""

    @property
    def head(self) -> str:
        return self.hosts[0]

    @property
    def needed(self) -> int:
        # Without a worker, a head that only coordinates would wait forever.
        return max(
            self.cluster.min_instances or len(self.hosts), 2 if self.cluster.coordinator_only else 1
        )


class Phase(Enum):
    FORMING = auto()
    WORKING = auto()
    ATTRIBUTING = auto()
    STOPPING = auto()
    ENDED = auto()


Step = tuple["HeadPolicy", tuple[life.Decision, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadPolicy:
    """The head's knowledge of its cluster; ``begin`` returns the first value, ``take`` the next."""

    rules: Rules
    phase: Phase = Phase.FORMING
    wakes_at_s: float | None = None
    connected: frozenset[str] = frozenset()
    nodes: Mapping[str, life.Node] = field(default_factory=dict)
    checking: frozenset[str] = frozenset()
    """Instances that check their GPUs."""
    lost: frozenset[str] = frozenset()
    """Lost workers; none of them returns, because the control channel accepts each worker only
    once."""
    restarting: Mapping[str, str] = field(default_factory=dict)
    """The id of the dead Ray node of each worker that restarts Ray."""
    is_overdue: bool = False
    """True if only the checks of GPUs are awaited, because the time to join is over."""
    unawaited: frozenset[str] = frozenset()
    """Instances that had not joined when the job started; they may join later."""
    formed: bool = False
    gcs_answers: bool = False
    driver_end: life.DriverEnded | None = None
    restarts: int = 0
    """Number of times that the driver was started again."""
    replaces_driver: bool = False
    """True while the driver is killed, to be started again."""

    @classmethod
    def begin(cls, rules: Rules, now_s: float) -> Step:
        policy = cls(rules=rules, wakes_at_s=now_s + rules.cluster.join_timeout_s)
        ahead = (life.StartDriver(),) if rules.starts_ahead else ()
        return policy, (*policy._announce_joined(rules.head), *ahead)

    @property
    def watches_nodes(self) -> bool:
        """True while the registration of Ray nodes matters, so that the GCS is polled."""
        awaited = self.phase is Phase.FORMING or bool(self.restarting)
        return self.gcs_answers and awaited and self.phase is not Phase.ENDED

    @property
    def present(self) -> tuple[str, ...]:
        """The connected instances whose GPUs are checked and whose Ray node is registered."""
        return tuple(host for host in self.rules.hosts if self._is_present(host))

    def take(self, event: life.Event, now_s: float) -> Step:
        """Return the next ``HeadPolicy`` after ``event`` and the decisions.

        At ``wakes_at_s`` the event is ``Tick``.
        """
        if self.phase is Phase.ENDED:
            return self, ()
        if self.phase is Phase.STOPPING:
            return self._take_while_stopping(event, now_s)
        policy, decisions = self._take(event, now_s)
        if policy.phase is not Phase.FORMING:
            return policy, decisions
        # Checked after every event, because a flood of messages must not delay the deadline.
        policy, more = policy._form(now_s)
        return policy, (*decisions, *more)

    def _take(self, event: life.Event, now_s: float) -> Step:
        match event:
            case life.StopRequested():
                return self._stop(now_s)
            case life.DriverEnded() if self.replaces_driver:
                return replace(self, replaces_driver=False), (life.RestartDriver(),)
            case life.DriverEnded():
                return self._take_driver_end(event, now_s)
            case life.Stalled() | life.Recovered() if self.phase is not Phase.WORKING:
                return self, ()
            case life.Stalled():
                return self._take_stall(event)
            case life.Recovered(after_s):
                return self, (
                    life.Announce("recovered", self.rules.head, f"after {duration(after_s)}"),
                )
            case life.Tick(silent):
                return self._attribute(silent, now_s) if self.driver_end else (self, ())
            case life.RayEnded(why):
                return self._end(RayFailed(f"Ray on the head {self.rules.head} ended: {why}"))
            case life.Failed(error):
                return self._end(error)
            case life.GcsAnswers():
                return replace(self, gcs_answers=True), (life.InviteToRay(self.connected),)
            case life.NodesChanged(nodes):
                # The GCS notices a dead raylet only after a moment, so a new node is recognized by
                # its id.
                rejoined = [
                    host
                    for host, dead in self.restarting.items()
                    if host in nodes and nodes[host].node_id != dead
                ]
                restarting = {
                    host: dead for host, dead in self.restarting.items() if host not in rejoined
                }
                announcements = tuple(
                    life.Announce("rejoined", host, "its Ray node was restarted")
                    for host in rejoined
                )
                return replace(self, nodes=dict(nodes), restarting=restarting), announcements
            case life.Joined(host):
                policy = replace(self, connected=self.connected | {host})
                invitation = (life.InviteToRay(frozenset({host})),) if self.gcs_answers else ()
                return policy, (*policy._announce_joined(host), *invitation)
            case life.Checking(host):
                return replace(self, checking=self.checking | {host}), ()
            case life.Checked(host):
                return replace(self, checking=self.checking - {host}), ()
            case life.Mismatch(reason=reason):
                return self._end(InvalidPayload(reason))
            case life.Lost(host, reason):
                return self._take_loss(host, reason)
            case life.Left(host):
                return self._take_loss(host, "it left before the job was over")
            case life.RayLost(host, reason):
                # A node that was never registered has no id that could be confused with its
                # successor's.
                dead = {host: self.nodes[host].node_id} if host in self.nodes else {}
                return replace(self, restarting={**self.restarting, **dead}), (
                    life.Announce("lost", host, reason),
                )
            case _:
                raise AssertionError(f"{event} happens to workers")

    # Forming

    def _form(self, now_s: float) -> Step:
        """Start the work if all instances that are not lost are present.

        At the deadline, enough of them suffice.
        """
        if all(self._is_present(host) for host in self.rules.hosts if host not in self.lost):
            return self._begin_work()
        if not self.is_overdue and (self.wakes_at_s is None or now_s < self.wakes_at_s):
            return self, ()
        missing = [host for host in self.rules.hosts if not self._has_joined(host)]
        shortage = self._describe_shortage(missing)
        joined = len(self.rules.hosts) - len(missing)
        if joined < self.rules.needed or self.rules.head in missing:
            return self._end(ClusterNotFormed(shortage))
        # A check of GPUs has a limit of its own, and does not count as time to join.
        if checking := [host for host in self.rules.hosts if self._is_checking(host)]:
            said = () if self.is_overdue else (self._name_checking(checking),)
            return replace(self, wakes_at_s=None, is_overdue=True), said
        remark = life.Remark(
            f"{shortage}; going on, as min_instances={self.rules.cluster.min_instances} says"
        )
        policy, decisions = self._begin_work()
        return policy, (remark, *decisions)

    def _begin_work(self) -> Step:
        policy = replace(
            self,
            phase=Phase.WORKING,
            wakes_at_s=None,
            formed=True,
            unawaited=frozenset(self.rules.hosts) - frozenset(self.present),
        )
        formed = life.Announce(
            "formed", self.rules.head, count=len(self.present), total=len(self.rules.hosts)
        )
        return policy, (formed, life.BeginWork(self.nodes[self.rules.head].address))

    def _describe_shortage(self, missing: Iterable[str]) -> str:
        connected = [host for host in missing if self._is_connected(host)]
        absent = [host for host in missing if host not in connected]
        timeout_s = self.rules.cluster.join_timeout_s
        total = len(self.rules.hosts)
        joined = total - len(absent) - len(connected)
        text = f"{joined} of {total} instances joined within {timeout_s:g} s"
        if absent:
            text += f"; missing: {listed(absent, MAX_NAMED)}"
        if connected:
            text += (
                f"; connected, but without a registered Ray node: {listed(connected, MAX_NAMED)}"
            )
        return text

    def _name_checking(self, hosts: Sequence[str]) -> life.Remark:
        return life.Remark(
            f"the work begins when {counted(len(hosts), 'instance')} more "
            f"{'has' if len(hosts) == 1 else 'have'} checked the GPUs: {listed(hosts, MAX_NAMED)}"
        )

    def _announce_joined(self, host: str) -> tuple[life.Announce, ...]:
        count, total = 1 + len(self.connected), len(self.rules.hosts)
        every = math.ceil(total / MAX_JOINED_LINES)
        # The last ones all have a line, because one of them may be awaited for long.
        last = min(every, MAX_NAMED)
        if 1 < count <= total - last and count % every:
            return ()
        return (life.Announce("joined", host, count=count, total=total),)

    def _is_present(self, host: str) -> bool:
        return self._has_joined(host) and host not in self.checking

    def _is_checking(self, host: str) -> bool:
        return self._has_joined(host) and host in self.checking

    def _has_joined(self, host: str) -> bool:
        return host in self.nodes and self._is_connected(host)

    def _is_connected(self, host: str) -> bool:
        return host == self.rules.head or host in self.connected

    # Losses

    def _take_loss(self, host: str, reason: str) -> Step:
        if host in self.lost:  # it has reported its failure before it closed its connection
            return self, ()
        policy = replace(
            self,
            connected=self.connected - {host},
            lost=self.lost | {host},
            restarting={other: dead for other, dead in self.restarting.items() if other != host},
        )
        announcement = life.Announce("lost", host, reason)
        left = policy._count_left()
        # Fatal before the deadline, because enough instances can no longer join, and every minute
        # costs money.
        is_fatal = left < (self.rules.cluster.min_instances or len(self.rules.hosts))
        if self.formed:
            is_fatal = self.rules.cluster.on_instance_loss == "fail" and host not in self.unawaited
        if is_fatal:
            return policy._end(InstanceLost(f"{host} lost: {reason}"), announcement)
        if self.rules.cluster.coordinator_only and left < 2:
            alone = "no instance is left to work, because the head only coordinates"
            return policy._end(InstanceLost(f"{host} lost: {reason}; {alone}"), announcement)
        remark = life.Remark(
            f"{host} lost: {reason}; going on with {left} instances, as the request says"
        )
        return policy, (announcement, remark)

    def _count_left(self) -> int:
        left = [host for host in self.rules.hosts if host not in self.lost]
        if self.formed:
            # Instances that join late count too.
            left = [host for host in left if self._is_connected(host)]
        return len(left)

    # Stalls

    def _take_stall(self, stall: life.Stalled) -> Step:
        rules = self.rules
        said = (
            life.Announce("stalled", rules.head, stall.sentence),
            life.Remark(stall.stacks),
        )
        if rules.on_stall == "warn":
            return self, said
        if rules.on_stall == "fail" or self.restarts == rules.max_restarts:
            times = f" (restart {self.restarts} of {rules.max_restarts})" if self.restarts else ""
            return self._end(JobStalled(f"{stall.sentence}{times}"), *said)
        policy = replace(self, restarts=self.restarts + 1, replaces_driver=True)
        remark = life.Remark(
            f"the workload is started again, as on_stall='restart' says: "
            f"restart {policy.restarts} of {rules.max_restarts}"
        )
        return policy, (*said, remark, life.KillDriver())

    # The end

    def _stop(self, now_s: float) -> Step:
        if self.driver_end:  # the driver has ended already, and its cause is known soon
            return self, ()
        head = self.rules.head
        remark = life.Remark(f"{head} was told to stop (SIGTERM)")
        if not self.formed:
            # No user code has run yet, so there is no grace period.
            return self._end(life.Stopped(), remark, life.Announce("stopping", head))
        grace_s = self.rules.grace_s
        stopping = life.Announce("stopping", head, f"user code has {grace_s:g} s")
        policy = replace(self, phase=Phase.STOPPING, wakes_at_s=now_s + grace_s)
        return policy, (remark, stopping, life.TerminateDriver())

    def _take_while_stopping(self, event: life.Event, now_s: float) -> Step:
        """Wait only for the driver: the service stops all instances, so losses are expected."""
        match event:
            case life.DriverEnded(status):
                return self._end(life.Stopped(in_time=status == 0))
        if self.wakes_at_s is not None and now_s >= self.wakes_at_s:
            return self._end(life.Stopped())
        return self, ()

    def _take_driver_end(self, event: life.DriverEnded, now_s: float) -> Step:
        if event.status == 0 and not self.formed:
            return self._end(
                ClusterNotFormed(
                    "the driver ended by itself, with 0, before the cluster was formed"
                )
            )
        if event.status == 0 or (event.failure is not None and not blames_cluster(event.failure)):
            return self._end(event)
        # A dead raylet or instance ends the driver within milliseconds, but is reported only a
        # second later.
        return replace(
            self, phase=Phase.ATTRIBUTING, wakes_at_s=now_s + VERDICT_S, driver_end=event
        ), ()

    def _attribute(self, silent: frozenset[str], now_s: float) -> Step:
        """End the job by the driver's own failure if no other cause has been reported in time."""
        assert self.driver_end is not None
        if self.wakes_at_s is not None and now_s < self.wakes_at_s:
            return self, ()
        if silent:
            # A silent worker may be the cause, until it sends a message or is lost.
            return replace(self, wakes_at_s=now_s + AGAIN_S), ()
        return self._end(self.driver_end)

    def _end(
        self, cause: Exception | life.DriverEnded | life.Stopped, *before: life.Decision
    ) -> Step:
        return replace(self, phase=Phase.ENDED, wakes_at_s=None), (*before, life.End(cause))

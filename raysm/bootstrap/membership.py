"""The head's policy: who belongs to the cluster, who is needed, when to give up, what ends the job.

Pure: a frozen ``Membership`` takes what happens (``lifecycle``'s events, each with the time) and returns the next one
and what is decided. No process, socket or clock is touched, so that every order of events can be tried in
milliseconds; ``head`` carries it out.

::

    FORMING ──all that are left are in, or enough at the deadline──> WORKING
    FORMING, WORKING ──the driver ends, and may have died of the cluster──> ATTRIBUTING ──its cause, or none──> ENDED
    WORKING ──SIGTERM──> STOPPING ──the driver ends, or its grace is over──> ENDED
    any ──what ends the job──> ENDED, from which nothing leads on: the cause that came first is the reason
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from raysm.bootstrap.exit_status import blames_cluster
from raysm.bootstrap.lifecycle import (
    Announce,
    BeginWork,
    Decision,
    DriverEnded,
    End,
    Failed,
    GcsAnswers,
    Happening,
    InviteToRay,
    Joined,
    Left,
    Lost,
    Mismatch,
    Node,
    NodesChanged,
    RayEnded,
    RayLost,
    Remark,
    StartDriver,
    Stopped,
    StopRequested,
    TerminateDriver,
    Tick,
)
from raysm.errors import ClusterNotFormed, InstanceLost, InvalidPayload, RayFailed
from raysm.request import Cluster

VERDICT_S = 1.5
"""``ray start`` looks after its processes once a second: so long a driver's end may precede the news of its cause."""
AGAIN_S = 0.05
"""After that, how often to look whether who is silent has spoken, or is lost."""
MAX_NAMED = 20
"""Hosts that one message names; of a thousand that are missing the first tell enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The parts of the request that the policy uses."""

    hosts: tuple[str, ...]
    """Every instance by rank: the head first."""
    cluster: Cluster
    grace_s: float
    """Seconds that user code has after SIGTERM."""
    starts_ahead: bool = False
    """Start the driver before the cluster is formed."""

    @property
    def head(self) -> str:
        """The head's host name."""
        return self.hosts[0]

    @property
    def needed(self) -> int:
        """The fewest instances, the head among them, with which the job may begin."""
        # Without a worker, a head that only coordinates would wait for ever.
        return max(self.cluster.min_instances or len(self.hosts), 2 if self.cluster.coordinator_only else 1)


class Phase(Enum):
    """The phases of a job; see the module's diagram."""

    FORMING = auto()
    WORKING = auto()
    ATTRIBUTING = auto()
    STOPPING = auto()
    ENDED = auto()


Step = tuple["Membership", tuple[Decision, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """The head's knowledge of its cluster; ``begin`` returns the first value, ``take`` each next one."""

    rules: Rules
    phase: Phase = Phase.FORMING
    wakes_at_s: float | None = None
    """The time of the next ``Tick``; None waits for events only."""
    connected: frozenset[str] = frozenset()
    """Workers on the control channel."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """Ray nodes that were registered when they were last watched, by host."""
    lost: frozenset[str] = frozenset()
    """Workers that are gone; none of them comes back, because the control channel takes each but once."""
    restarting: Mapping[str, str] = field(default_factory=dict)
    """The id of the dead Ray node of each worker that starts another one."""
    unawaited: frozenset[str] = frozenset()
    """Those without whom the job began: they may come later, or never."""
    formed: bool = False
    gcs_answers: bool = False
    """True once workers can be invited to join Ray."""
    driver_end: DriverEnded | None = None
    """The end of the driver, while its cause is not known yet."""

    @classmethod
    def begin(cls, rules: Rules, now_s: float) -> Step:
        """Return the membership of a head that has just begun to listen."""
        membership = cls(rules=rules, wakes_at_s=now_s + rules.cluster.join_timeout_s)
        ahead = (StartDriver(),) if rules.starts_ahead else ()
        return membership, (membership._say_joined(rules.head), *ahead)

    @property
    def watches_nodes(self) -> bool:
        """True while the registration of Ray nodes matters, so that the GCS is polled."""
        awaited = self.phase is Phase.FORMING or bool(self.restarting)
        return self.gcs_answers and awaited and self.phase is not Phase.ENDED

    @property
    def present(self) -> tuple[str, ...]:
        """The instances whose bootstrap is connected and whose Ray node is registered, by rank."""
        return tuple(host for host in self.rules.hosts if self._is_present(host))

    def take(self, event: Happening, now_s: float) -> Step:
        """Return what the head knows after ``event``, and what it decides.

        Args:
            event: What has happened; ``Tick`` where nothing has until ``wakes_at_s``.
            now_s: The time, in seconds that never go back.
        """
        if self.phase is Phase.ENDED:
            return self, ()
        if self.phase is Phase.STOPPING:
            return self._take_while_stopping(event, now_s)
        membership, decisions = self._take(event, now_s)
        if membership.phase is not Phase.FORMING:
            return membership, decisions
        # After every event, not only after ticks: a flood of messages must not put off the deadline.
        membership, more = membership._form(now_s)
        return membership, (*decisions, *more)

    def _take(self, event: Happening, now_s: float) -> Step:
        match event:
            case StopRequested():
                return self._stop(now_s)
            case DriverEnded():
                return self._take_driver_end(event, now_s)
            case Tick(silent):
                return self._attribute(silent, now_s) if self.driver_end else (self, ())
            case RayEnded(why):
                return self._end(RayFailed(f"Ray on the head {self.rules.head} ended: {why}"))
            case Failed(error):
                return self._end(error)
            case GcsAnswers():
                return replace(self, gcs_answers=True), (InviteToRay(self.connected),)
            case NodesChanged(nodes):
                return self._take_nodes(nodes)
            case Joined(host):
                return self._take_joined(host)
            case Mismatch(reason=reason):
                return self._end(InvalidPayload(reason))
            case Lost(host, reason):
                return self._take_loss(host, reason)
            case Left(host):
                return self._take_loss(host, "it left before the job was over")
            case RayLost(host, reason):
                return self._take_ray_loss(host, reason)
            case _:
                raise AssertionError(f"{event} happens to workers")

    # Forming

    def _form(self, now_s: float) -> Step:
        """Begin to work if all that can come are in, or if the deadline has passed and those who are in are enough."""
        if all(self._is_present(host) for host in self.rules.hosts if host not in self.lost):
            return self._begin_work()
        if self.wakes_at_s is None or now_s < self.wakes_at_s:
            return self, ()
        missing = [host for host in self.rules.hosts if not self._is_present(host)]
        shortage = self._describe_shortage(missing)
        if len(self.present) < self.rules.needed or self.rules.head in missing:
            return self._end(ClusterNotFormed(shortage))
        remark = Remark(f"{shortage}; going on, as min_instances={self.rules.cluster.min_instances} says")
        membership, decisions = self._begin_work()
        return membership, (remark, *decisions)

    def _begin_work(self) -> Step:
        membership = replace(
            self,
            phase=Phase.WORKING,
            wakes_at_s=None,
            formed=True,
            unawaited=frozenset(self.rules.hosts) - frozenset(self.present),
        )
        formed = Announce("formed", self.rules.head, count=len(self.present), total=len(self.rules.hosts))
        return membership, (formed, BeginWork(self.nodes[self.rules.head].address))

    def _describe_shortage(self, missing: Iterable[str]) -> str:
        mute = [host for host in missing if self._is_connected(host)]
        absent = [host for host in missing if host not in mute]
        timeout_s = self.rules.cluster.join_timeout_s
        text = f"{len(self.present)} of {len(self.rules.hosts)} instances joined within {timeout_s:g} s"
        if absent:
            text += f"; missing: {_enumerate(absent)}"
        if mute:
            text += f"; connected, but without a registered Ray node: {_enumerate(mute)}"
        return text

    def _take_joined(self, host: str) -> Step:
        membership = replace(self, connected=self.connected | {host})
        invitation = (InviteToRay(frozenset({host})),) if self.gcs_answers else ()
        return membership, (membership._say_joined(host), *invitation)

    def _say_joined(self, host: str) -> Announce:
        return Announce("joined", host, count=1 + len(self.connected), total=len(self.rules.hosts))

    def _is_present(self, host: str) -> bool:
        return host in self.nodes and self._is_connected(host)

    def _is_connected(self, host: str) -> bool:
        return host == self.rules.head or host in self.connected

    # Losses

    def _take_nodes(self, nodes: Mapping[str, Node]) -> Step:
        # The GCS may take a moment to see that a raylet is dead: only another id says that there is a new one.
        rejoined = [host for host, dead in self.restarting.items() if host in nodes and nodes[host].node_id != dead]
        restarting = {host: dead for host, dead in self.restarting.items() if host not in rejoined}
        sayings = tuple(Announce("rejoined", host, "its Ray node was restarted") for host in rejoined)
        return replace(self, nodes=dict(nodes), restarting=restarting), sayings

    def _take_ray_loss(self, host: str, reason: str) -> Step:
        # One that was never registered leaves no id behind by which its successor could be told from it.
        dead = {host: self.nodes[host].node_id} if host in self.nodes else {}
        return replace(self, restarting={**self.restarting, **dead}), (Announce("lost", host, reason),)

    def _take_loss(self, host: str, reason: str) -> Step:
        """Note that a worker is gone; end the job if it cannot, or shall not, go on."""
        if host in self.lost:  # it has said that it fails, and then closed its connection
            return self, ()
        membership = replace(
            self,
            connected=self.connected - {host},
            lost=self.lost | {host},
            restarting={other: dead for other, dead in self.restarting.items() if other != host},
        )
        announcement = Announce("lost", host, reason)
        left = membership._count_left()
        if self._is_fatal(host, left):
            return membership._end(InstanceLost(f"{host} lost: {reason}"), announcement)
        if self.rules.cluster.coordinator_only and left < 2:
            alone = "no instance is left to work, because the head only coordinates"
            return membership._end(InstanceLost(f"{host} lost: {reason}; {alone}"), announcement)
        remark = Remark(f"{host} lost: {reason}; going on with {left} instances, as the request says")
        return membership, (announcement, remark)

    def _count_left(self) -> int:
        left = [host for host in self.rules.hosts if host not in self.lost]
        if self.formed:
            # Instances that had not joined in time count once they have come.
            left = [host for host in left if self._is_connected(host)]
        return len(left)

    def _is_fatal(self, host: str, left: int) -> bool:
        if not self.formed:
            # At once, not at the deadline: that enough will come is impossible by now, and every minute is paid for.
            return left < (self.rules.cluster.min_instances or len(self.rules.hosts))
        return self.rules.cluster.on_instance_loss == "fail" and host not in self.unawaited

    # The end

    def _stop(self, now_s: float) -> Step:
        if self.driver_end:  # it has ended already: there is nothing to stop, and its cause is nearly known
            return self, ()
        head = self.rules.head
        remark = Remark(f"{head} was told to stop (SIGTERM)")
        if not self.formed:
            # No user's code has run yet: nothing needs its grace.
            return self._end(Stopped(), remark, Announce("stopping", head))
        grace_s = self.rules.grace_s
        stopping = Announce("stopping", head, f"user code has {grace_s:g} s")
        membership = replace(self, phase=Phase.STOPPING, wakes_at_s=now_s + grace_s)
        return membership, (remark, stopping, TerminateDriver())

    def _take_while_stopping(self, event: Happening, now_s: float) -> Step:
        """Wait for the driver alone: the service ends all instances, so that losses say nothing any more."""
        match event:
            case DriverEnded(status):
                return self._end(Stopped(in_time=status == 0))
        if self.wakes_at_s is not None and now_s >= self.wakes_at_s:
            return self._end(Stopped())
        return self, ()

    def _take_driver_end(self, event: DriverEnded, now_s: float) -> Step:
        if event.status == 0 and not self.formed:
            return self._end(ClusterNotFormed("the driver ended by itself, with 0, before the cluster was formed"))
        if event.status == 0 or (event.failure is not None and not blames_cluster(event.failure)):
            return self._end(event)
        # A dead raylet or instance ends the driver within milliseconds, and is known itself a second later.
        return replace(self, phase=Phase.ATTRIBUTING, wakes_at_s=now_s + VERDICT_S, driver_end=event), ()

    def _attribute(self, silent: frozenset[str], now_s: float) -> Step:
        """Call the driver's end its own once no news of another cause can be on its way."""
        assert self.driver_end is not None
        if self.wakes_at_s is not None and now_s < self.wakes_at_s:
            return self, ()
        if silent:
            # Frozen or cut off: until it speaks, or is lost, it may be what the driver died of.
            return replace(self, wakes_at_s=now_s + AGAIN_S), ()
        return self._end(self.driver_end)

    def _end(self, cause: Exception | DriverEnded | Stopped, *before: Decision) -> Step:
        return replace(self, phase=Phase.ENDED, wakes_at_s=None), (*before, End(cause))


def _enumerate(hosts: list[str]) -> str:
    more = f" and {len(hosts) - MAX_NAMED} more" if len(hosts) > MAX_NAMED else ""
    return ", ".join(hosts[:MAX_NAMED]) + more

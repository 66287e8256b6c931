"""A worker's policy: how long it tries to join, how often it restarts Ray, and what ends it.

Like ``membership``, it has no side effects: a frozen ``Member`` takes an event and returns the next ``Member`` and
decisions, which ``worker`` carries out.
"""

from dataclasses import dataclass, replace

from raysm.bootstrap.lifecycle import (
    Connected,
    Decision,
    Delayed,
    Done,
    End,
    Failed,
    GcsReachable,
    Happening,
    Invited,
    JobEnded,
    JoinRay,
    Lost,
    RayEnded,
    ReachGcs,
    Remark,
    StartRay,
    Stopped,
    StopRequested,
    TellHead,
    Tick,
)
from raysm.errors import ClusterNotFormed, InstanceLost, RayFailed
from raysm.request import Cluster

MAX_RESTARTS = 3
"""A raylet that dies more often than this does not die by accident."""
STOP_MARGIN_S = 10.0
"""Seconds beyond user code's grace that the head may need to say done."""
SERVICE_GRACE_S = 118.0
"""SageMaker kills 120 s after SIGTERM: the two left are for ending Ray, so that its end is ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRules:
    """The parts of the request that the policy uses."""

    name: str
    head: str
    """The head's host name."""
    cluster: Cluster
    grace_s: float
    """Seconds that user code has after SIGTERM."""


Step = tuple["Member", tuple[Decision, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A worker's knowledge of its membership; ``begin`` returns the first value, ``take`` each next one."""

    rules: WorkerRules
    wakes_at_s: float | None
    """The time of the next ``Tick``; None waits for events only."""
    is_connected: bool = False
    """True after the head has accepted this worker."""
    head_address: str = ""
    """The head's IP address; known with the connection."""
    gcs_address: str = ""
    """``IP:port`` of the head's Ray; empty until it answers, and with that until Ray has been started here."""
    obstacle: str = ""
    """Why this worker has not joined yet, for people."""
    restarts: int = 0
    """Number of times that Ray was restarted here."""
    is_stopping: bool = False
    """True after SIGTERM."""
    head_lost: bool = False
    has_ended: bool = False
    """True once the end is decided; then nothing else is."""

    @classmethod
    def begin(cls, rules: WorkerRules, now_s: float) -> "Member":
        """Return a member that has just begun to look for its head."""
        return cls(rules=rules, wakes_at_s=now_s + rules.cluster.join_timeout_s)

    def take(self, event: Happening, now_s: float) -> Step:
        """Return what this worker knows after ``event``, and what it decides.

        Args:
            event: What has happened; ``Tick`` where nothing has until ``wakes_at_s``.
            now_s: The time, in seconds that never go back.
        """
        if self.has_ended:
            return self, ()
        member, decisions = self._take(event, now_s)
        if member.has_ended or member.wakes_at_s is None or now_s < member.wakes_at_s:
            return member, decisions
        # After every event, not only after ticks: one failed attempt after the other must not put off the deadline.
        member, more = member._give_up()
        return member, (*decisions, *more)

    def _take(self, event: Happening, now_s: float) -> Step:
        match event:
            case StopRequested():
                return self._stop(now_s)
            case Tick():
                return self, ()
            case Failed(error):
                return self._end(error)
            case Delayed(reason):
                return replace(self, obstacle=reason), ()
            case Connected(head_address):
                obstacle = "the head has not said that its Ray answers"
                member = replace(self, is_connected=True, head_address=head_address, obstacle=obstacle)
                # Its imports take as long as the head's: both at once, and not one behind the other.
                return member, (StartRay(),)
            case Invited(port):
                return self._accept(port)
            case GcsReachable(address):
                return self._join_ray(address)
            case RayEnded(why):
                return self._restart_ray(why)
            case JobEnded(reason):
                remarks = (Remark(f"the head {self.rules.head} ended the job: {reason}"),) if reason else ()
                return self._end(Done(), *remarks)
            case Lost(host, reason):
                member = replace(self, head_lost=True)
                # The service ends all instances at once: the head that is gone first was told to go too.
                if self.is_stopping:
                    return member._end(Stopped())
                return member._leave(InstanceLost(f"the head {host} was lost: it {reason}"))
            case _:
                raise AssertionError(f"{event} happens to heads")

    # Joining

    def _accept(self, port: int) -> Step:
        obstacle = (
            f"the control channel works, but the head's Ray does not answer at {self.head_address}, port {port}:"
            " a firewall or security group may drop the packets"
        )
        return replace(self, obstacle=obstacle), (ReachGcs(port),)

    def _join_ray(self, address: str) -> Step:
        # The head checks whether Ray's node registers in time; only a stopping worker keeps its deadline.
        wakes_at_s = self.wakes_at_s if self.is_stopping else None
        return replace(self, gcs_address=address, wakes_at_s=wakes_at_s), (JoinRay(address),)

    def _give_up(self) -> Step:
        if self.is_stopping:
            return self._end(Stopped())
        rules, cluster = self.rules, self.rules.cluster
        text = f"{rules.name} did not join the head {rules.head} within {cluster.join_timeout_s:g} s: {self.obstacle}"
        if cluster.min_instances is None:
            return self._end(ClusterNotFormed(text))
        # The head decides whether the job goes on without this instance; an instance that fails would fail the job.
        return self._end(
            Done(), Remark(f"{text}; leaving it to the others, as min_instances={cluster.min_instances} says")
        )

    # Ray

    def _restart_ray(self, why: str) -> Step:
        name = self.rules.name
        if self.restarts == MAX_RESTARTS:
            error = RayFailed(f"Ray on {name} ended for the {MAX_RESTARTS + 1}th time: {why}")
            return self._leave(error, TellHead(str(error), for_good=True))
        member = replace(self, restarts=self.restarts + 1)
        text = f"its Ray node ended ({why}); restart {member.restarts} of {MAX_RESTARTS}"
        # Also one that was started ahead may end: before there is anything to join.
        joins = (JoinRay(self.gcs_address),) if self.gcs_address else ()
        return member, (Remark(f"{name}: {text}"), TellHead(text), StartRay(), *joins)

    # The end

    def _stop(self, now_s: float) -> Step:
        if not self.is_connected:
            return self._end(Stopped())
        if self.is_stopping:
            return self, ()
        # Ray runs until the head says done, because user code may need objects of this instance for its checkpoint. A
        # stopping instance need not join any more, so this deadline replaces the one for joining.
        grace_s = min(self.rules.grace_s + STOP_MARGIN_S, SERVICE_GRACE_S)
        return replace(self, is_stopping=True, wakes_at_s=now_s + grace_s), ()

    def _leave(self, error: Exception, *tell: Decision) -> Step:
        """End by an error, unless the job may go on without this instance: then well, and with what is to be told."""
        if self.rules.cluster.on_instance_loss == "fail":
            return self._end(error)
        # One container that fails is a failed job to the service, whatever the head makes of the loss; and a head that
        # is gone indeed has failed it by itself.
        text = f"{error}; leaving it to the others, as on_instance_loss='continue' says"
        return self._end(Done(), Remark(text), *tell)

    def _end(self, cause: Exception | Stopped | Done, *before: Decision) -> Step:
        return replace(self, has_ended=True, wakes_at_s=None), (*before, End(cause))

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
"""Maximum number of restarts of Ray; more deaths are no accident."""
STOP_MARGIN_S = 10.0
"""Seconds after user code's grace period within which the head must end the job."""
SERVICE_GRACE_S = 118.0
"""SageMaker kills 120 s after SIGTERM; the last two seconds are for ending Ray in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRules:
    """The parts of the request that the policy uses."""

    name: str
    head: str
    """The head's host name."""
    cluster: Cluster
    grace_s: float
    """Seconds that user code may run after SIGTERM."""


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
    """The head's IP address; empty before the connection."""
    gcs_address: str = ""
    """``IP:port`` of the head's GCS; empty until it answers."""
    obstacle: str = ""
    """The reason why this worker has not joined yet, for messages."""
    restarts: int = 0
    """Number of times that Ray was restarted here."""
    is_stopping: bool = False
    """True after SIGTERM."""
    head_lost: bool = False
    has_ended: bool = False
    """True after the last decision, ``End``."""

    @classmethod
    def begin(cls, rules: WorkerRules, now_s: float) -> "Member":
        """Return the member of a worker that starts to connect to its head."""
        return cls(rules=rules, wakes_at_s=now_s + rules.cluster.join_timeout_s)

    def take(self, event: Happening, now_s: float) -> Step:
        """Return the next ``Member`` after ``event``, and the decisions.

        Args:
            event: The event; ``Tick`` if there was none before ``wakes_at_s``.
            now_s: The time of a monotonic clock, in seconds.
        """
        if self.has_ended:
            return self, ()
        member, decisions = self._take(event, now_s)
        if member.has_ended or member.wakes_at_s is None or now_s < member.wakes_at_s:
            return member, decisions
        # Checked after every event, because a series of failed attempts must not delay the deadline.
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
                # Started now, so that its imports run at the same time as the head's.
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
                # The service stops all instances at once, so the head has only ended earlier.
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
        # From here on the head checks that Ray's node registers in time; a stopping worker keeps its deadline.
        wakes_at_s = self.wakes_at_s if self.is_stopping else None
        return replace(self, gcs_address=address, wakes_at_s=wakes_at_s), (JoinRay(address),)

    def _give_up(self) -> Step:
        if self.is_stopping:
            return self._end(Stopped())
        rules, cluster = self.rules, self.rules.cluster
        text = f"{rules.name} did not join the head {rules.head} within {cluster.join_timeout_s:g} s: {self.obstacle}"
        if cluster.min_instances is None:
            return self._end(ClusterNotFormed(text))
        # The head decides whether the job continues without this instance, whose failure would fail the job.
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
        # Ray may also end before the GCS answers, when there is no address to join yet.
        joins = (JoinRay(self.gcs_address),) if self.gcs_address else ()
        return member, (Remark(f"{name}: {text}"), TellHead(text), StartRay(), *joins)

    # The end

    def _stop(self, now_s: float) -> Step:
        if not self.is_connected:
            return self._end(Stopped())
        if self.is_stopping:
            return self, ()
        # Ray runs until the head ends the job, because user code may need objects of this instance for its checkpoint.
        # This deadline replaces the one for joining.
        grace_s = min(self.rules.grace_s + STOP_MARGIN_S, SERVICE_GRACE_S)
        return replace(self, is_stopping=True, wakes_at_s=now_s + grace_s), ()

    def _leave(self, error: Exception, *tell: Decision) -> Step:
        """End with an error; if the job may continue without this instance, end without one and make ``tell``."""
        if self.rules.cluster.on_instance_loss == "fail":
            return self._end(error)
        # If one container fails, the service fails the job, even if the head continues. If it is the head that is lost,
        # its own end fails the job.
        text = f"{error}; leaving it to the others, as on_instance_loss='continue' says"
        return self._end(Done(), Remark(text), *tell)

    def _end(self, cause: Exception | Stopped | Done, *before: Decision) -> Step:
        return replace(self, has_ended=True, wakes_at_s=None), (*before, End(cause))

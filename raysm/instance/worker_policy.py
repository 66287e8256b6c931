"""A worker's policy: how long it tries to join, how often it restarts Ray, and what ends it.

Like ``head_policy``, it has no side effects: a frozen ``WorkerPolicy`` takes an event and returns
the next ``WorkerPolicy`` and decisions, which ``worker`` carries out.
"""

from dataclasses import dataclass, replace

from raysm.core.request import Cluster
from raysm.errors import ClusterNotFormed, InstanceLost, RayFailed
from raysm.instance import lifecycle as life

MAX_RESTARTS = 3
STOP_MARGIN_S = 10.0
"""Seconds after user code's grace period within which the head must end the job."""
SERVICE_GRACE_S = 118.0
"""SageMaker kills 120 s after SIGTERM; the last two seconds are for ending Ray in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRules:
    name: str
    head: str
    cluster: Cluster
    grace_s: float


Step = tuple["WorkerPolicy", tuple[life.Decision, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerPolicy:
    """A worker's knowledge of the job; ``begin`` returns the first value, ``take`` the next."""

    rules: WorkerRules
    wakes_at_s: float | None
    is_connected: bool = False
    head_address: str = ""
    gcs_address: str = ""
    obstacle: str = ""
    restarts: int = 0
    is_stopping: bool = False
    head_lost: bool = False
    has_ended: bool = False

    @classmethod
    def begin(cls, rules: WorkerRules, now_s: float) -> "WorkerPolicy":
        return cls(rules=rules, wakes_at_s=now_s + rules.cluster.join_timeout_s)

    def take(self, event: life.Event, now_s: float) -> Step:
        """Return the next ``WorkerPolicy`` after ``event`` and the decisions.

        At ``wakes_at_s`` the event is ``Tick``.
        """
        if self.has_ended:
            return self, ()
        policy, decisions = self._take(event, now_s)
        if policy.wakes_at_s is None or now_s < policy.wakes_at_s:
            return policy, decisions
        # Checked after every event, because a series of failed attempts must not delay the
        # deadline.
        policy, more = policy._give_up()
        return policy, (*decisions, *more)

    def _take(self, event: life.Event, now_s: float) -> Step:
        match event:
            case life.StopRequested():
                return self._stop(now_s)
            case life.Tick():
                return self, ()
            case life.Failed(error):
                return self._end(error)
            case life.Delayed(reason):
                return replace(self, obstacle=reason), ()
            case life.Connected(head_address):
                obstacle = "the head has not said that its Ray answers"
                policy = replace(
                    self, is_connected=True, head_address=head_address, obstacle=obstacle
                )
                # Started now, so that its imports run at the same time as the head's.
                return policy, (life.StartRay(),)
            case life.Invited(port):
                return self._accept(port)
            case life.GcsReachable(address):
                # From here on the head checks that Ray's node registers in time; a stopping worker
                # keeps its deadline.
                wakes_at_s = self.wakes_at_s if self.is_stopping else None
                return replace(self, gcs_address=address, wakes_at_s=wakes_at_s), (
                    life.JoinRay(address),
                )
            case life.RayEnded(why):
                return self._restart_ray(why)
            case life.JobEnded(reason):
                remarks = (
                    (life.Remark(f"the head {self.rules.head} ended the job: {reason}"),)
                    if reason
                    else ()
                )
                return self._end(life.Done(), *remarks)
            case life.Lost(host, reason):
                policy = replace(self, head_lost=True)
                # The service stops all instances at once, so the head has only ended earlier.
                if self.is_stopping:
                    return policy._end(life.Stopped())
                return policy._leave(InstanceLost(f"the head {host} was lost: it {reason}"))
            case _:
                raise AssertionError(f"{event} happens to heads")

    # Joining

    def _accept(self, port: int) -> Step:
        obstacle = (
            "the control channel works, but the head's Ray does not answer at "
            f"{self.head_address}, port {port}: a firewall or security group may drop the packets"
        )
        return replace(self, obstacle=obstacle), (life.ReachGcs(port),)

    def _give_up(self) -> Step:
        if self.is_stopping:
            return self._end(life.Stopped())
        rules = self.rules
        cluster = self.rules.cluster
        text = (
            f"{rules.name} did not join the head {rules.head} within "
            f"{cluster.join_timeout_s:g} s: {self.obstacle}"
        )
        if cluster.min_instances is None:
            return self._end(ClusterNotFormed(text))
        # The head decides whether the job continues without this instance, whose failure would fail
        # the job.
        return self._end(
            life.Done(),
            life.Remark(
                f"{text}; leaving it to the others, as min_instances={cluster.min_instances} says"
            ),
        )

    # Ray

    def _restart_ray(self, why: str) -> Step:
        name = self.rules.name
        if self.restarts == MAX_RESTARTS:
            error = RayFailed(f"Ray on {name} ended for the {MAX_RESTARTS + 1}th time: {why}")
            return self._leave(error, life.TellHead(str(error), for_good=True))
        policy = replace(self, restarts=self.restarts + 1)
        text = f"its Ray node ended ({why}); restart {policy.restarts} of {MAX_RESTARTS}"
        # Ray may also end before the GCS answers, when there is no address to join yet.
        joins = (life.JoinRay(self.gcs_address),) if self.gcs_address else ()
        return policy, (
            life.Remark(f"{name}: {text}"),
            life.TellHead(text),
            life.StartRay(),
            *joins,
        )

    # The end

    def _stop(self, now_s: float) -> Step:
        if not self.is_connected:
            return self._end(life.Stopped())
        if self.is_stopping:
            return self, ()
        # Ray runs until the head ends the job, because user code may need objects of this instance
        # for its checkpoint. This deadline replaces the one for joining.
        grace_s = min(self.rules.grace_s + STOP_MARGIN_S, SERVICE_GRACE_S)
        return replace(self, is_stopping=True, wakes_at_s=now_s + grace_s), ()

    def _leave(self, error: Exception, *tell: life.Decision) -> Step:
        """End with an error.

        If the job may continue without this instance, end without one and make ``tell``.
        """
        if self.rules.cluster.on_instance_loss == "fail":
            return self._end(error)
        # If one container fails, the service fails the job, even if the head continues. If it is
        # the head that is lost, its own end fails the job.
        text = f"{error}; leaving it to the others, as on_instance_loss='continue' says"
        return self._end(life.Done(), life.Remark(text), *tell)

    def _end(self, cause: Exception | life.Stopped | life.Done, *before: life.Decision) -> Step:
        return replace(self, has_ended=True, wakes_at_s=None), (*before, life.End(cause))

"""The life of a job: the policies of a head and its workers, under any order of what can happen.

The real policies (``head_policy`` and ``worker_policy``) run on simulated instances.
Messages take any time, connections break, instances pause, vanish and lose Ray, the service stops
the job, and the driver fails by itself or because of a loss. An observer that knows what truly
happened judges how each instance ended.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from raysm.core.protocol.result import Failure
from raysm.core.request import Cluster
from raysm.errors import ClusterNotFormed, InstanceLost, InvalidPayload, RayFailed
from raysm.instance import lifecycle as life
from raysm.instance.control import LATE_BEATS
from raysm.instance.head_policy import VERDICT_S, HeadPolicy, Rules
from raysm.instance.worker_policy import SERVICE_GRACE_S, WorkerPolicy, WorkerRules

JOIN_S = 60.0
SILENCE_S = 30.0
PORT = 6379
REPORTED_S = 2.0
"""By then the head knows of a Ray node that was registered."""
OWN = Failure(error_type="ValueError", message="no such column")
OF_RAY = Failure(error_type="ray.exceptions.ActorDiedError", message="its node is gone")

ENDS_S = JOIN_S + 600.0 + 3 * SILENCE_S + SERVICE_GRACE_S
"""The longest driver works for 600 s; by then every instance must have ended."""


MOST_EVENTS = 20_000
"""More than happen to any job that ends."""

TROUBLES = {
    "pause": 3,
    "vanish": 4,
    "close": 4,
    "ray": 4,
    "head ray": 1,
    "mismatch": 1,
    "driver": 1,
    "fail": 1,
}
"""What goes wrong, and how often."""


class Clock:
    """What will happen, in the order of its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []

    def at(self, at_s: float, work: Callable[[], object]) -> None:
        heapq.heappush(self._waiting, (max(self.now, at_s), next(self._numbers), work))

    def after(self, seconds: float, work: Callable[[], object]) -> None:
        self.at(self.now + seconds, work)

    def run(self, until_s: float) -> bool:
        """Let everything until a time happen; return False if that takes no end."""
        for _ in range(MOST_EVENTS):
            if not self._waiting or self._waiting[0][0] > until_s:
                return True
            self.now, _, work = heapq.heappop(self._waiting)
            work()
        return False


@dataclass(kw_only=True)
class Instance:
    """One instance: its policy, and what it has heard and decided."""

    name: str
    policy: HeadPolicy | WorkerPolicy
    paused_until_s: float = 0.0
    has_vanished: bool = False
    """Its machine is gone, without a word."""
    was_killed: bool = False
    """Whether the service had to kill it, two minutes after SIGTERM."""
    is_connected: bool = False
    heard_s: float = 0.0
    """When the head last heard of it."""
    number: int = 0
    """How often its Ray was started."""
    heard: list[tuple[float, life.Event]] = field(default_factory=list)
    causes: list[tuple[float, life.Cause]] = field(default_factory=list)
    after_end: list[life.Decision] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return bool(self.causes)


class Simulation:
    """One run of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.trace: list[str] = []
        chance = self.chance
        count = chance.choice((1, 2, 3, 5))
        hosts = tuple(f"algo-{rank + 1}" for rank in range(count))
        is_coordinator = count > 1 and chance.random() < 0.2
        self.cluster = Cluster(
            count=count,
            join_timeout_s=JOIN_S,
            silence_s=SILENCE_S,
            min_instances=chance.choice((None, None, chance.randint(1, count))),
            on_instance_loss=chance.choice(("fail", "continue")),
            coordinator_only=is_coordinator,
        )
        rules = Rules(
            hosts=hosts,
            cluster=self.cluster,
            grace_s=chance.choice((0.0, 100.0)),
            starts_ahead=chance.random() < 0.5,
            on_stall=chance.choice(("warn", "fail", "restart")),
            max_restarts=1,
        )
        policy, self._first = HeadPolicy.begin(rules, 0.0)
        self.head = Instance(name=hosts[0], policy=policy, is_connected=True)
        self.workers = {
            name: Instance(
                name=name,
                policy=WorkerPolicy.begin(
                    WorkerRules(
                        name=name, head=hosts[0], cluster=self.cluster, grace_s=rules.grace_s
                    ),
                    0.0,
                ),
            )
            for name in hosts[1:]
        }
        self.nodes: dict[str, life.Node] = {}
        self.registered_s = 0.0
        """When the last Ray node was registered."""
        self.had_all_nodes = False
        """Whether all Ray nodes were there when the head ended."""
        self.driver = "waits"
        self.driver_ended_s: float | None = None
        self.formed_s: float | None = None
        self.loss_s: dict[str, float] = {}
        """When each worker was truly lost, or left."""
        self.unreported: set[str] = set()
        """Those whose loss the head's control channel has not reported yet."""
        self.silent: set[str] = set()
        """Those whose connections did not close when they were lost."""

    def run(self) -> list[str]:
        """Run the seed; return the promises that it breaks, each in a line."""
        chance, clock = self.chance, self.clock
        self._carry_out_all(self.head, self._first)
        self._tick_later(self.head)
        clock.after(chance.uniform(0.5, 5), self._head_ray_is_up)
        for worker in self.workers.values():
            self._tick_later(worker)
            if chance.random() < 0.93:
                clock.after(
                    self._delay_s((1, 20, JOIN_S + 5)), lambda one=worker: self._connect(one)
                )
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            clock.after(self._delay_s((5, JOIN_S)), self._trouble)
        if chance.random() < 0.25:
            self._stop_all(chance.choice((5, 50, 300)) * chance.random())
        if not clock.run(ENDS_S):
            return [f"spins: the same moment, {clock.now:.1f} s, comes again and again"]
        return list(self._broken_promises())

    # -- what happens

    def _delay_s(self, scales: tuple[float, ...]) -> float:
        return self.chance.choice(scales) * self.chance.random()

    def _trouble(self) -> None:
        """Let one thing go wrong."""
        chance = self.chance
        kind = chance.choice(
            (
                *("pause", "vanish", "close", "ray", "ray"),
                *("head ray", "mismatch", "driver", "fail", "stall"),
            )
        )
        worker = chance.choice(list(self.workers.values())) if self.workers else None
        if kind == "head ray":
            self._tell(self.head, life.RayEnded("the raylet was killed"))
            self._fail_driver_soon()
        elif kind == "fail":
            self._tell(self.head, life.Failed(RuntimeError("a bug of the bootstrap")))
        elif kind == "stall":
            self._tell(self.head, life.Stalled("rank 1 sleeps", "rank 1 …"))
        elif kind == "driver":
            self._end_driver(chance.choice((1, 137)), chance.choice((None, OWN, OF_RAY)))
        elif worker is not None and not worker.has_ended:
            self.trace.append(f"{self.clock.now:8.1f}  {kind} {worker.name}")
            if kind == "pause":
                self._pause(worker, self._delay_s((1, 10, 100)))
            elif kind == "vanish":
                self._vanish(worker)
            elif kind == "close":
                self._break(worker, "closed its connection")
            elif kind == "ray" and worker.number:
                self._ray_ends(worker)
            elif kind == "mismatch" and not worker.is_connected:
                self._tell(self.head, life.Mismatch(worker.name, "its payload is another one"))

    def _head_ray_is_up(self) -> None:
        if not self.head.has_ended:
            self.nodes[self.head.name] = life.Node(f"{self.head.name}/1", "10.0.0.1")
            self._tell(self.head, life.GcsAnswers())
            self._report_nodes()

    def _connect(self, worker: Instance) -> None:
        if worker.has_ended or worker.has_vanished:
            return
        if self.head.has_ended:
            # Nothing listens there: the worker tries until its deadline.
            self._tell(worker, life.Delayed("the connection was refused"))
            return
        worker.is_connected, worker.heard_s = True, self.clock.now
        self._tell(worker, life.Connected("10.0.0.1"))
        self._send_to_head(worker, life.Joined(worker.name))

    def _send_to_head(self, worker: Instance, event: life.Event) -> None:
        def arrive() -> None:
            if worker.is_connected:
                self._tell(self.head, event)

        self.clock.after(self._delay_s((0.01, 0.5)), arrive)

    def _send_to_worker(self, worker: Instance, event: life.Event) -> None:
        self.clock.after(self._delay_s((0.01, 0.5)), lambda: self._tell(worker, event))

    def _break(self, worker: Instance, reason: str) -> None:
        """Let the connection end; both ends notice."""
        if not worker.is_connected:
            return
        worker.is_connected = False
        self.loss_s.setdefault(worker.name, self.clock.now)
        self.nodes.pop(worker.name, None)
        self.unreported.add(worker.name)

        def report() -> None:
            self._tell(self.head, life.Lost(worker.name, reason))
            self.unreported.discard(worker.name)

        self.clock.after(self._delay_s((0.01, 0.9)), report)
        self.clock.after(
            self._delay_s((0.01, 0.9)),
            lambda: self._tell(worker, life.Lost(self.head.name, reason)),
        )
        self._fail_driver_soon()

    def _vanish(self, worker: Instance) -> None:
        """Let the machine be gone: its connection closes, or nothing is heard any more."""
        if worker.has_vanished:
            return
        worker.has_vanished = True
        self.loss_s.setdefault(worker.name, self.clock.now)
        if not worker.is_connected:
            return
        if self.chance.random() < 0.5:
            self._break(worker, "closed its connection")
            return
        self.nodes.pop(worker.name, None)
        if worker.paused_until_s <= self.clock.now:
            worker.heard_s = self.clock.now
        self.silent.add(worker.name)

        def notice() -> None:
            if worker.is_connected:
                worker.is_connected = False
                self._tell(self.head, life.Lost(worker.name, "said nothing for 30 s"))

        self.clock.after(SILENCE_S, notice)
        # Ray's own connections tell its driver nothing before some heartbeats are missing.
        if self.chance.random() < 0.5:
            self.clock.after(LATE_BEATS + 1 + self._delay_s((20,)), self._fail_driver_soon)

    def _pause(self, worker: Instance, seconds: float) -> None:
        if worker.has_vanished or worker.paused_until_s > self.clock.now:
            return
        worker.paused_until_s = self.clock.now + seconds
        if not worker.is_connected:
            return
        worker.heard_s = self.clock.now
        if seconds >= SILENCE_S:
            self.loss_s.setdefault(worker.name, self.clock.now)
            self.silent.add(worker.name)
            self.clock.after(SILENCE_S, lambda: self._break(worker, "said nothing for 30 s"))

    def _ray_ends(self, worker: Instance) -> None:
        self.nodes.pop(worker.name, None)
        self._tell(worker, life.RayEnded("the raylet was killed"))
        if self.chance.random() < 0.3:
            self._fail_driver_soon()

    def _stop_all(self, after_s: float) -> None:
        self.trace.append(f"{after_s:8.1f}  SIGTERM to all")
        for instance in (self.head, *self.workers.values()):
            # The service sends it to all within a second.
            self.clock.at(
                after_s + self.chance.random(),
                lambda one=instance: self._tell(one, life.StopRequested()),
            )
            # And kills them after the rest of two minutes.
            self.clock.at(after_s + 121.0, lambda one=instance: self._kill(one))

    def _kill(self, instance: Instance) -> None:
        if instance.has_ended or instance.has_vanished:
            return
        instance.has_vanished = True
        # One that was paused could not end by itself.
        instance.was_killed = instance.paused_until_s < self.clock.now - 121.0

    # -- the driver

    def _start_work(self) -> None:
        self.driver, self.formed_s = "works", self.clock.now
        seconds = self._delay_s((5, 100, 600))
        status, failure = self.chance.choice(
            ((0, None), (0, None), (1, OWN), (1, OF_RAY), (137, None))
        )
        self.clock.after(seconds, lambda: self._end_driver(status, failure))
        for _ in range(self.chance.choice((0, 1, 1, 3))):
            self.clock.after(self._delay_s((1, 30, 300)), self._trouble)

    def _end_driver(self, status: int, failure: Failure | None) -> None:
        if self.driver not in ("works", "ahead"):
            return
        self.driver, self.driver_ended_s = "ended", self.clock.now
        self._tell(self.head, life.DriverEnded(status, failure))

    def _fail_driver_soon(self) -> None:
        """Let the driver fail because of a loss, perhaps before the head knows of the loss."""
        if self.driver == "works" and self.chance.random() < 0.5:
            seconds = self._delay_s((0.1, 5))
            self.clock.after(
                seconds, lambda: self._end_driver(1, self.chance.choice((OF_RAY, None)))
            )

    # -- policies

    def _tell(self, instance: Instance, event: life.Event) -> None:
        if instance.has_vanished:
            return
        if instance.paused_until_s > self.clock.now:
            self.clock.at(instance.paused_until_s, lambda: self._tell(instance, event))
            return
        instance.heard.append((self.clock.now, event))
        instance.policy, decisions = instance.policy.take(event, self.clock.now)
        if not isinstance(event, life.Tick):
            self.trace.append(f"{self.clock.now:8.1f}  {instance.name} hears {event}")
        self._carry_out_all(instance, decisions)
        self._tick_later(instance)

    def _tick_later(self, instance: Instance) -> None:
        wakes_at_s = instance.policy.wakes_at_s
        if wakes_at_s is None or instance.has_ended:
            return

        def tick() -> None:
            if instance.policy.wakes_at_s == wakes_at_s and not instance.has_ended:
                self._tell(
                    instance, life.Tick(self._silent() if instance is self.head else frozenset())
                )

        self.clock.at(wakes_at_s, tick)

    def _silent(self) -> frozenset[str]:
        late_s = self.clock.now - LATE_BEATS
        return frozenset(
            worker.name
            for worker in self.workers.values()
            if (worker.is_connected or worker.name in self.unreported)
            and (worker.has_vanished or worker.paused_until_s > self.clock.now)
            and worker.heard_s < late_s
        )

    def _carry_out_all(self, instance: Instance, decisions: tuple[life.Decision, ...]) -> None:
        for decision in decisions:
            if instance.has_ended:
                instance.after_end.append(decision)
            else:
                self._carry_out(instance, decision)

    def _carry_out(self, instance: Instance, decision: life.Decision) -> None:
        chance, clock = self.chance, self.clock
        match decision:
            case life.End(cause):
                self.trace.append(f"{clock.now:8.1f}  {instance.name} ends by {cause!r}")
                instance.causes.append((clock.now, cause))
                self._leave(instance, cause)
            case life.StartDriver():
                self.driver = "ahead"
            case life.BeginWork():
                self._start_work()
            case life.KillDriver():
                self._end_driver(-9, None)
            case life.RestartDriver():
                self.driver = "works"
                clock.after(self._delay_s((5, 100)), lambda: self._end_driver(0, None))
            case life.TerminateDriver() if self.driver == "works":
                if chance.random() < 0.7:
                    clock.after(
                        self._delay_s((1, 130)),
                        lambda: self._end_driver(chance.choice((0, 1)), None),
                    )
            case life.InviteToRay(hosts):
                for host in hosts:
                    self._send_to_worker(self.workers[host], life.Invited(PORT))
            case life.StartRay():
                instance.number += 1
            case life.ReachGcs(port) if chance.random() < 0.95:
                address = f"10.0.0.1:{port}"
                clock.after(
                    self._delay_s((1, 10)), lambda: self._tell(instance, life.GcsReachable(address))
                )
            case life.JoinRay() if chance.random() < 0.97:
                number = instance.number
                clock.after(self._delay_s((2, 20)), lambda: self._register(instance, number))
            case life.TellHead(reason, for_good):
                lost = life.Lost if for_good else life.RayLost
                if for_good:
                    self.loss_s.setdefault(instance.name, clock.now)
                self._send_to_head(instance, lost(instance.name, reason))

    def _register(self, worker: Instance, number: int) -> None:
        if worker.number == number and not worker.has_ended and worker.is_connected:
            self.nodes[worker.name] = life.Node(f"{worker.name}/{number}", "10.0.0.2")
            self.registered_s = self.clock.now
            self._report_nodes()

    def _report_nodes(self) -> None:
        nodes = dict(self.nodes)

        def report() -> None:
            if isinstance(self.head.policy, HeadPolicy) and self.head.policy.watches_nodes:
                self._tell(self.head, life.NodesChanged(nodes))

        self.clock.after(self._delay_s((0.05, 1)), report)
        self.clock.after(1.5, report)

    def _leave(self, instance: Instance, cause: life.Cause) -> None:
        if instance is self.head:
            self.had_all_nodes = len(self.nodes) == 1 + len(self.workers)
            for worker in self.workers.values():
                if worker.is_connected:
                    self._send_to_worker(worker, life.JobEnded(str(cause)))
            return
        if instance.is_connected:
            self.loss_s.setdefault(instance.name, self.clock.now)
            self.nodes.pop(instance.name, None)
            left = life.Left(instance.name)
            if isinstance(cause, Exception):
                left = life.Lost(instance.name, str(cause))
            self._send_to_head(instance, left)
            # After its last message.
            self.clock.after(1.0, lambda: setattr(instance, "is_connected", False))

    # -- promises

    def _broken_promises(self) -> Iterator[str]:
        for instance in (self.head, *self.workers.values()):
            if instance.after_end:
                yield f"after the end: {instance.name} decides {instance.after_end[0]}"
            if instance.was_killed:
                yield f"does not stop: {instance.name} was killed 121 s after SIGTERM"
            if not instance.has_ended and not instance.has_vanished:
                yield f"waits for ever: {instance.name}, {instance.policy}"
        if self.head.causes:
            yield from self._wrong_cause(*self.head.causes[0])
        for worker in self.workers.values():
            if worker.causes:
                yield from self._wrong_end(worker, *worker.causes[0])

    def _wrong_cause(self, at_s: float, cause: life.Cause) -> Iterator[str]:
        """Compare the job's cause with the first one that the head could know, and with the truth."""
        heard = [(heard_s, event) for heard_s, event in self.head.heard if heard_s <= at_s]
        stops = [heard_s for heard_s, event in heard if isinstance(event, life.StopRequested)]
        ends = [(heard_s, event) for heard_s, event in heard if isinstance(event, life.DriverEnded)]
        known = {
            RayFailed: life.RayEnded,
            InvalidPayload: life.Mismatch,
            RuntimeError: life.Failed,
        }
        if isinstance(cause, life.Stopped) and not stops:
            yield f"no cause: the job was stopped, and no one asked for it ({cause})"
        if isinstance(cause, life.DriverEnded) and not ends:
            yield "no cause: the driver is blamed, and it had not ended"
        for kind, event in known.items():
            if type(cause) is kind and not any(isinstance(each, event) for _, each in heard):
                yield f"no cause: {cause!r} was not heard"
        if isinstance(cause, InstanceLost):
            lost = {event.host for _, event in heard if isinstance(event, life.Lost | life.Left)}
            if not any(str(cause).startswith(f"{host} lost") for host in lost):
                yield f"no cause: {cause} was not heard"
        if isinstance(cause, ClusterNotFormed) and self.formed_s is not None:
            yield f"no cause: {cause}, and it was formed at {self.formed_s:.1f} s"
        if isinstance(cause, ClusterNotFormed) and not ends:
            if at_s < JOIN_S:
                yield f"gives up early: {cause}, at {at_s:.1f} s"
            if self.had_all_nodes and not self.loss_s and self.registered_s < at_s - REPORTED_S:
                yield f"not formed: {cause}, and all Ray nodes were registered at {self.registered_s:.1f} s"
        if stops and self.formed_s is not None and stops[0] > self.formed_s:
            is_first = not ends or stops[0] < ends[0][0]
            if is_first and not isinstance(cause, life.Stopped):
                yield f"not the first cause: SIGTERM at {stops[0]:.1f} s, and the end is {cause!r}"
        yield from self._blamed_wrongly(at_s, cause)

    def _blamed_wrongly(self, at_s: float, cause: life.Cause) -> Iterator[str]:
        """Find a driver that is blamed although an instance that it needed was lost before."""
        if not isinstance(cause, life.DriverEnded) or cause.status == 0 or cause.failure is OWN:
            return
        if self.cluster.on_instance_loss != "fail" or self.driver_ended_s is None:
            return
        assert isinstance(self.head.policy, HeadPolicy)
        if self.formed_s is None:
            return
        for host, lost_s in self.loss_s.items():
            # A closed connection is known within a second, silence only when heartbeats are
            # missing.
            known_s = lost_s + (LATE_BEATS - VERDICT_S if host in self.silent else 0.0)
            if self.formed_s < lost_s and known_s < self.driver_ended_s:
                if host not in self.head.policy.unawaited:
                    yield f"not the first cause: {host} was lost at {lost_s:.1f} s, and {cause} is blamed"

    def _wrong_end(self, worker: Instance, at_s: float, cause: life.Cause) -> Iterator[str]:
        heard = [event for heard_s, event in worker.heard if heard_s <= at_s]
        if isinstance(cause, ClusterNotFormed | life.Done):
            may_end = any(
                isinstance(each, life.JobEnded | life.Lost | life.RayEnded) for each in heard
            )
            if not may_end and (
                at_s < JOIN_S or any(isinstance(each, life.GcsReachable) for each in heard)
            ):
                yield f"gives up early: {worker.name} ends by {cause} at {at_s:.1f} s"
        if isinstance(cause, InstanceLost) and not any(
            isinstance(each, life.Lost) for each in heard
        ):
            yield f"no cause: {worker.name} ends by {cause}"
        if isinstance(cause, life.Stopped) and not any(
            isinstance(each, life.StopRequested) for each in heard
        ):
            yield f"no cause: {worker.name} was stopped, and no one asked for it"
        if isinstance(cause, RayFailed):
            ends = sum(isinstance(each, life.RayEnded) for each in heard)
            if ends < 4:
                yield f"no cause: {worker.name} gave Ray up after {ends} ends"

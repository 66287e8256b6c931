"""Attempts at a training: placed on the instances, started again as often as allowed, and stopped by SIGTERM."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Literal

from raysm.errors import InstanceLost, InvalidRequest, WorkerFailed
from raysm.workloads.nodes import Node
from raysm.workloads.training.launch.placement import Place

__all__ = ["Attempt", "NodesLost", "Policy", "Stop", "Stopped", "grace_of_workers", "say", "train"]

Attempt = Callable[[tuple[Place, ...], int], None]
"""(places, number of earlier attempts) -> None once all workers have ended well."""

RETURN_S = 60.0
"""How long an instance whose loss is not allowed may be away: the bootstrap starts its Ray again, or ends the job."""
ASK_S = 0.5


class Stopped(Exception):
    """A stop was asked for, and the workers have ended; ``clean`` says that all of them did with 0."""

    def __init__(self, clean: bool) -> None:
        """Take how the workers ended."""
        self.clean = clean
        super().__init__("stopped")


class NodesLost(Exception):
    """Instances, or their Rays, went away during an attempt.

    Attributes:
        nodes: Which ones.
    """

    def __init__(self, nodes: Sequence[Node], why: str) -> None:
        """Take the instances, and what was seen."""
        self.nodes = tuple(nodes)
        hosts = ", ".join(node.host for node in nodes)
        super().__init__(f"{hosts} lost while it trained: {why}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is done about failures."""

    max_restarts: int
    """How often all workers are started again after a worker, or the Ray of an instance, failed."""
    on_instance_loss: Literal["fail", "continue"]
    """What the loss of an instance does; going on without it is not counted as a restart."""


def train(
    attempt: Attempt,
    *,
    nodes: Callable[[], Sequence[Node]],
    place: Callable[[Sequence[Node]], tuple[Place, ...]],
    policy: Policy,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Place, ...]:
    """Attempt the training until it succeeds or its retries are used up; return where the workers were.

    Args:
        attempt: One attempt; it raises WorkerFailed, NodesLost or Stopped.
        nodes: Returns the instances that are alive.
        place: Gives the workers to instances.
        policy: What is done about failures.
        say: Takes a line for people.
        sleep: Waits; it may raise Stopped.

    Raises:
        WorkerFailed: More often than the policy allows; the last time.
        InstanceLost: An instance went away, and the policy, or what is left, does not allow to go on.
        InvalidRequest: The workers do not fit the instances.
        Stopped: A stop was asked for.
    """
    # By node id, not by name: an instance whose Ray was started anew is another node, and may be used again.
    lost_ids: set[str] = set()
    places = place(nodes())
    number = restarts = 0
    while True:
        _tell(places, number, say)
        try:
            attempt(places, number)
            return places
        except WorkerFailed as error:
            # The user reads the last failure; the earlier ones are in the log.
            if restarts == policy.max_restarts:
                raise
            restarts += 1
            say(f"{error}; restart {restarts} of {policy.max_restarts} with all workers")
        except NodesLost as error:
            lost_ids.update(node.node_id for node in error.nodes)
            # Continuing without it costs no restart: the user allows instances to be lost.
            if policy.on_instance_loss == "fail":
                restarts += 1
                if restarts > policy.max_restarts or not _came_back(error.nodes, lost_ids, nodes, sleep):
                    raise InstanceLost(
                        f"{error}; to go on after such a loss, allow max_restarts of the workers, or "
                        "Cluster(on_instance_loss='continue')"
                    ) from error
            say(f"{error}; all workers are started anew")
        number += 1
        # Ray takes some seconds to call a node dead: those that failed us are left out, whatever it says.
        places = _places_left(place, [node for node in nodes() if node.node_id not in lost_ids])


def _places_left(place: Callable[[Sequence[Node]], tuple[Place, ...]], present: Sequence[Node]) -> tuple[Place, ...]:
    try:
        return place(present)
    except InvalidRequest as error:
        raise InstanceLost(f"the training cannot go on with what is left of the instances: {error}") from error


def _came_back(
    lost: Sequence[Node], lost_ids: set[str], nodes: Callable[[], Sequence[Node]], sleep: Callable[[float], None]
) -> bool:
    """Wait until each of their hosts is there again, with its Ray started anew; False if one does not come."""
    # By count, so that tests can pass a sleep that takes no time.
    for _ in range(int(RETURN_S / ASK_S)):
        present = {node.host for node in nodes() if node.node_id not in lost_ids}
        if present.issuperset(node.host for node in lost):
            return True
        sleep(ASK_S)
    return False


def _tell(places: tuple[Place, ...], number: int, say: Callable[[str], None]) -> None:
    workers = sum(item.workers for item in places)
    # A list of a hundred instances is not read.
    shown = ", ".join(map(str, places[:8])) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
    on = "GPUs" if places[0].gpus else "CPUs"
    again = f" (attempt {number + 1})" if number else ""
    say(f"training{again}: {workers} worker{'s' if workers > 1 else ''} on {on}: {shown}")


def say(text: str) -> None:
    """Print a line for people."""
    print(f"raysm: {text}", flush=True)  # noqa: T201 - the job's log


MARGIN_S = 5.0
"""Of the driver's grace, what it keeps to bring the model together."""


class Stop:
    """Whether a stop was asked for; a context in which SIGTERM asks for one."""

    def __init__(self) -> None:
        """No stop yet."""
        self.asked = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> "Stop":
        # What was there is put back: the driver's own handler ends the process.
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def listen(self) -> None:
        """Put the handler in place again: ``ray.init`` has put its own there."""
        signal.signal(signal.SIGTERM, self._ask)

    def sleep(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait.

        Raises:
            Stopped: A stop was asked for meanwhile.
        """
        until = clock() + seconds
        while clock() < until:
            if self.asked:
                raise Stopped(clean=False)
            # Python continues to sleep after a handler has run, so the naps are short.
            time.sleep(min(0.1, seconds))

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def grace_of_workers(grace_s: float) -> float:
    """Return the seconds that the workers have after SIGTERM, of the ``grace_s`` that the driver has."""
    return max(grace_s / 2, grace_s - MARGIN_S)

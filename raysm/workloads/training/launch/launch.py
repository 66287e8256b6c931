"""Start a training, watch and restart its workers, handle a stop, and download the model: for scripts and for loops."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Literal

import ray

from raysm.bootstrap.environment import Environment, inherited
from raysm.contract.machine import let_others_first
from raysm.contract.payload import Payload
from raysm.errors import InstanceLost, InvalidRequest, WorkerFailed
from raysm.workloads.nodes import Node, cluster_nodes
from raysm.workloads.training.launch.output import Relay
from raysm.workloads.training.launch.placement import Group, Place
from raysm.workloads.training.launch.result import download_model, write_manifest

Attempt = Callable[[tuple[Place, ...], int], None]
"""(places, number of earlier attempts) -> None once all workers have ended well."""

RETURN_S = 60.0
"""Seconds to wait for an instance whose loss is not allowed: the bootstrap starts its Ray again, or ends the job."""
POLL_S = 0.5


class Stopped(Exception):
    """A stop was asked for, and the workers have ended; ``clean`` if all of them did so with 0."""

    def __init__(self, clean: bool) -> None:
        self.clean = clean
        super().__init__("stopped")


class NodesLost(Exception):
    """Instances, or their Rays, went away during an attempt."""

    def __init__(self, nodes: Sequence[Node], why: str) -> None:
        self.nodes = tuple(nodes)
        hosts = ", ".join(node.host for node in nodes)
        super().__init__(f"{hosts} lost while it trained: {why}")


def train(
    attempt: Attempt,
    *,
    nodes: Callable[[], Sequence[Node]],
    place: Callable[[Sequence[Node]], tuple[Place, ...]],
    max_restarts: int,
    on_instance_loss: Literal["fail", "continue"],
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Place, ...]:
    """Attempt the training until it succeeds or its retries are used up; return where the workers were.

    Args:
        attempt: One attempt; it raises WorkerFailed, NodesLost or Stopped.
        nodes: Returns the instances that are alive.
        place: Assigns the workers to instances.
        max_restarts: Number of restarts of all workers, after a worker or the Ray of an instance has failed.
        on_instance_loss: ``continue`` goes on without a lost instance, which does not count as a restart.
        say: Takes a line for people.
        sleep: Waits; it may raise Stopped.

    Raises:
        WorkerFailed: A worker failed more than ``max_restarts`` times; this is the last failure.
        InstanceLost: An instance went away, and ``on_instance_loss`` or the remaining instances do not allow to go on.
        InvalidRequest: The workers do not fit the instances.
        Stopped: A stop was asked for.
    """
    # Node ids, not names: an instance whose Ray was restarted is another node, and may be used again.
    lost_ids: set[str] = set()
    places = place(nodes())
    number = restarts = 0
    while True:
        _announce(places, number, say)
        try:
            attempt(places, number)
            return places
        except WorkerFailed as error:
            # The user reads the last failure; the earlier ones are in the log.
            if restarts == max_restarts:
                raise
            restarts += 1
            say(f"{error}; restart {restarts} of {max_restarts} with all workers")
        except NodesLost as error:
            lost_ids.update(node.node_id for node in error.nodes)
            # Continuing without it costs no restart: the user allows instances to be lost.
            if on_instance_loss == "fail":
                restarts += 1
                if restarts > max_restarts or not _came_back(error.nodes, lost_ids, nodes, sleep):
                    raise InstanceLost(
                        f"{error}; to go on after such a loss, allow max_restarts of the workers, or "
                        "Cluster(on_instance_loss='continue')"
                    ) from error
            say(f"{error}; all workers are started again")
        number += 1
        # Ray takes some seconds to declare a node dead, so the failed ones are left out here.
        places = _places_left(place, [node for node in nodes() if node.node_id not in lost_ids])


def _places_left(place: Callable[[Sequence[Node]], tuple[Place, ...]], present: Sequence[Node]) -> tuple[Place, ...]:
    try:
        return place(present)
    except InvalidRequest as error:
        raise InstanceLost(f"the training cannot go on with what is left of the instances: {error}") from error


def _came_back(
    lost: Sequence[Node], lost_ids: set[str], nodes: Callable[[], Sequence[Node]], sleep: Callable[[float], None]
) -> bool:
    """Wait until each of their hosts is back, with a new Ray; return False if one does not come."""
    # Counted, not timed, so that tests can pass a sleep that takes no time.
    for _ in range(int(RETURN_S / POLL_S)):
        present = {node.host for node in nodes() if node.node_id not in lost_ids}
        if present.issuperset(node.host for node in lost):
            return True
        sleep(POLL_S)
    return False


def _announce(places: tuple[Place, ...], number: int, say: Callable[[str], None]) -> None:
    workers = sum(item.workers for item in places)
    # A list of a hundred instances is not read.
    shown = ", ".join(map(str, places[:8])) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
    on = "GPUs" if places[0].gpus else "CPUs"
    again = f" (attempt {number + 1})" if number else ""
    say(f"training{again}: {workers} worker{'s' if workers > 1 else ''} on {on}: {shown}")


def say(text: str) -> None:
    print(f"raysm: {text}", flush=True)  # noqa: T201 - the job's log


MARGIN_S = 5.0
"""Seconds of the driver's grace that it keeps for itself, to download the model."""


class Stop:
    """A request to stop; SIGTERM makes it while the context lasts."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> "Stop":
        # Kept to be restored: the driver's own handler ends the process.
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def listen(self) -> None:
        """Install the handler again, because ``ray.init`` has replaced it."""
        signal.signal(signal.SIGTERM, self._ask)

    def sleep(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait; raise Stopped if a stop is asked for meanwhile."""
        until = clock() + seconds
        while clock() < until:
            if self.asked:
                raise Stopped(clean=False)
            # Python continues to sleep after a handler has run, so the naps are short.
            time.sleep(min(0.1, seconds))

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def grace_of_workers(grace_s: float) -> float:
    """Return the seconds that the workers have after SIGTERM, of the driver's ``grace_s``."""
    return max(grace_s / 2, grace_s - MARGIN_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The objects that all attempts of one training share."""

    payload: Payload
    environment: Environment
    relay: Relay
    stop: Stop
    threads: int | None
    """OMP_NUM_THREADS if the user has set it."""

    def group(self, places: tuple[Place, ...], attempt: int, max_restarts: int, master_port: int = 0) -> Group:
        return Group(
            world_size=sum(item.workers for item in places),
            instances=len(places),
            master_address=places[0].node.address,
            master_port=master_port,
            attempt=attempt,
            max_restarts=max_restarts,
            run_id=self.environment.job_name,
        )


def launch_training(
    payload: Payload,
    environment: Environment,
    *,
    place: Callable[[Sequence[Node]], tuple[Place, ...]],
    max_restarts: int,
    attempts: Callable[[Launch], Attempt],
) -> None:
    """Train on the instances that Ray shows.

    Args:
        payload: The request and the source.
        environment: The head's environment.
        place: Assigns the workers to instances.
        max_restarts: Number of restarts of all workers.
        attempts: Returns the function that attempts the training; called once Ray is connected.

    Raises:
        WorkerFailed: A worker failed more than ``max_restarts`` times.
        InstanceLost: An instance went away, and the job does not go on without it.
        InvalidRequest: The workers do not fit the instances, or raysm refused a call of a worker.
        SystemExit: A stop was asked for, and the workers did not all end with 0.
    """
    # Read before Ray sets it for this process.
    threads = inherited().get("OMP_NUM_THREADS", "")
    let_others_first()
    with Stop() as stop:
        # "auto" is the cluster of RAY_ADDRESS, with the token at RAY_AUTH_TOKEN_PATH.
        ray.init(address="auto", log_to_driver=False, configure_logging=False)
        stop.listen()
        # The other instances reach the head's Ray at this address, so the relay listens there too.
        relay = Relay(ray.util.get_node_ip_address())
        launch = Launch(
            payload=payload,
            environment=environment,
            relay=relay,
            stop=stop,
            threads=int(threads) if threads.isdigit() else None,
        )
        try:
            _train(launch, attempts(launch), place, max_restarts)
        finally:
            relay.close()
            ray.shutdown()


def _train(
    launch: Launch, attempt: Attempt, place: Callable[[Sequence[Node]], tuple[Place, ...]], max_restarts: int
) -> None:
    # Restarts count as time of the training.
    model, begun_s = launch.environment.paths.model, time.monotonic()
    last_places: list[tuple[Place, ...]] = []

    def remembered(places: tuple[Place, ...], number: int) -> None:
        # Kept for a stop: the model is where rank 0 of the last attempt was.
        last_places[:] = [places]
        attempt(places, number)

    try:
        places = train(
            remembered,
            nodes=cluster_nodes,
            place=place,
            max_restarts=max_restarts,
            on_instance_loss=launch.payload.request.cluster.on_instance_loss,
            say=say,
            sleep=launch.stop.sleep,
        )
    except Stopped as stopped:
        if last_places:
            download_model(last_places[0][0].node, launch.environment, say)
        if not stopped.clean:
            raise SystemExit(143) from None
    else:
        training_s = time.monotonic() - begun_s
        download_model(places[0].node, launch.environment, say)
        write_manifest(launch.payload.request, model, tuple(item.node.host for item in places), training_s)

"""Start a training, watch and restart its workers, handle a stop, and download the model.

Scripts and loops share this module.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal

import ray
from ray.exceptions import RayError, RayTaskError

from raysm.core.protocol.names import listed
from raysm.core.protocol.payload import Payload
from raysm.core.protocol.result import TRAINING, Manifest, Measured
from raysm.core.request import JobRequest
from raysm.errors import InstanceLost, InvalidRequest, WorkerFailed
from raysm.features.training.cluster.launch.output import Relay
from raysm.features.training.cluster.launch.placement import Group, Place
from raysm.instance import environment
from raysm.instance.environment import Environment, inherited
from raysm.instance.ray_internals import BACKPRESSURE, spare_options
from raysm.instance.work import folders, runner
from raysm.instance.work.nodes import Node, cluster_nodes, only_on

Attempt = Callable[[tuple[Place, ...], int], None]
"""(places, number of earlier attempts) -> None once all workers have ended well."""

RETURN_S = 60.0
"""Seconds to wait for an instance whose loss is not allowed: the bootstrap starts its Ray again, or
ends the job."""
RETURN_POLL_S = 0.5


class Stopped(Exception):
    def __init__(self, clean: bool) -> None:
        self.clean = clean
        self.places: tuple[Place, ...] = ()
        super().__init__("stopped")


class NodesLost(Exception):
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
    """Attempt the training until it succeeds or its retries are used up.

    Return the places of the workers. ``attempt`` and ``sleep`` may raise Stopped. With
    ``on_instance_loss="continue"``, the loss of an instance does not use up a restart.
    """
    # Node ids, not names: an instance whose Ray was restarted is another node, and may be used
    # again.
    lost_ids: set[str] = set()
    places = place(nodes())
    number = restarts = 0
    try:
        while True:
            workers = sum(item.workers for item in places)
            # A list of a hundred instances is not read.
            shown = listed([*map(str, places)], 8)
            again = f" (attempt {number + 1})" if number else ""
            processors = "GPUs" if places[0].gpus else "CPUs"
            say(
                f"training{again}: {workers} worker{'s' if workers > 1 else ''} on {processors}: "
                f"{shown}"
            )
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
                    if restarts > max_restarts or not _came_back(
                        error.nodes, lost_ids, nodes, sleep
                    ):
                        raise InstanceLost(
                            f"{error}; to go on after such a loss, allow max_restarts of the "
                            "workers, or Cluster(on_instance_loss='continue')"
                        ) from error
                say(f"{error}; all workers are started again")
            number += 1
            # Ray takes some seconds to declare a node dead, so the failed ones are left out here.
            try:
                places = place([node for node in nodes() if node.node_id not in lost_ids])
            except InvalidRequest as error:
                raise InstanceLost(
                    f"the training cannot go on with what is left of the instances: {error}"
                ) from error
    except Stopped as stopped:
        # The model is where rank 0 of the last attempt was.
        stopped.places = places
        raise


def _came_back(
    lost: Sequence[Node],
    lost_ids: set[str],
    nodes: Callable[[], Sequence[Node]],
    sleep: Callable[[float], None],
) -> bool:
    # Counted, not timed, so that tests can pass a sleep that takes no time.
    for _ in range(int(RETURN_S / RETURN_POLL_S)):
        present = {node.host for node in nodes() if node.node_id not in lost_ids}
        if present.issuperset(node.host for node in lost):
            return True
        sleep(RETURN_POLL_S)
    return False


def say(text: str) -> None:
    print(f"raysm: {text}", flush=True)  # noqa: T201 - the job's log


MARGIN_S = 5.0
"""Seconds of the driver's grace that it keeps for itself, to download the model."""


class Stop:
    def __init__(self) -> None:
        self.asked = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> "Stop":
        # Kept to be restored: the driver's own handler ends the process.
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def listen(self) -> None:
        """Install the handler again, because ``ray.init`` has replaced it."""
        signal.signal(signal.SIGTERM, self._ask)

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.asked:
                raise Stopped(clean=False)
            # Python continues to sleep after a handler has run, so the naps are short.
            time.sleep(min(0.1, seconds))

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def grace_of_workers(grace_s: float) -> float:
    return max(grace_s / 2, grace_s - MARGIN_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    payload: Payload
    environment: Environment
    relay: Relay
    stop: Stop
    threads: int | None
    """OMP_NUM_THREADS if the user has set it."""

    def group(
        self, places: tuple[Place, ...], attempt: int, max_restarts: int, master_port: int = 0
    ) -> Group:
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
    address: str = "auto",
    place: Callable[[Sequence[Node]], tuple[Place, ...]],
    max_restarts: int,
    attempts: Callable[[Launch], Attempt],
) -> None:
    # Read before Ray sets it for this process.
    threads = inherited().get("OMP_NUM_THREADS", "")
    model = environment.paths.model
    begun_s = time.monotonic()
    with Stop() as stop:
        # "auto" is the cluster of RAY_ADDRESS; the token is at RAY_AUTH_TOKEN_PATH.
        ray.init(address=address, log_to_driver=False, configure_logging=False)
        stop.listen()
        # The other instances reach the head's Ray at this address, so the relay listens there too.
        relay = Relay(ray.util.get_node_ip_address())
        count = int(threads) if threads.isdigit() else None
        launch = Launch(
            payload=payload, environment=environment, relay=relay, stop=stop, threads=count
        )
        try:
            places = train(
                attempts(launch),
                nodes=cluster_nodes,
                place=place,
                max_restarts=max_restarts,
                on_instance_loss=payload.request.cluster.on_instance_loss,
                say=say,
                sleep=stop.sleep,
            )
            # Restarts count as time of the training.
            training_s = time.monotonic() - begun_s
            download_model(places[0].node, environment, say)
            write_manifest(
                payload.request, model, tuple(item.node.host for item in places), training_s
            )
        except Stopped as stopped:
            download_model(stopped.places[0].node, environment, say)
            if not stopped.clean:
                raise SystemExit(143) from None
        finally:
            relay.close()
        # Not ray.shutdown, which lets every worker end in order, for 0.2 s of a core each.
        runner.leave()


def download_model(node: Node, head: Environment, say: Callable[[str], None]) -> None:
    if node.host == head.current_host:
        outputs = folders.save_outputs(head)
    else:
        # Without retries, because another instance has another folder, and no rank 0.
        read = ray.remote(num_cpus=0, max_retries=0)(_sent)
        stream = read.options(
            num_returns="streaming",
            scheduling_strategy=only_on(node.node_id),
            # Else the whole model would pile up in the head's object store.
            **spare_options(
                BACKPRESSURE, {"_generator_backpressure_num_objects": folders.UNDER_WAY}
            ),
        ).remote()
        try:
            outputs = ray.get(next(stream))
            folders.write_pieces((ray.get(piece) for piece in stream), head.paths.model)
        # The task itself raised, an error of raysm or of the disk: no instance was lost.
        except RayTaskError:
            raise
        except RayError as error:
            raise InstanceLost(f"{node.host} lost, and rank 0's model with it") from error
    if outputs:
        say(
            "the result also has the files that rank 0 left in its working folder: "
            f"{', '.join(outputs)}"
        )


def _sent() -> Iterator[list[str] | tuple[str, bytes]]:
    instance = environment.read()
    yield folders.save_outputs(instance)
    yield from folders.read_pieces(instance.paths.model)


def write_manifest(
    request: JobRequest, model: Path, hosts: tuple[str, ...], training_s: float
) -> Manifest | None:
    # A script that does not use raysm.training leaves none.
    measured = (
        Measured.read(model) if (model / TRAINING).is_file() else Measured(summary="", measures={})
    )
    return runner.write_manifest(
        request,
        model,
        instances=hosts,
        phases_s={"training": training_s},
        # The package that can read a model again; other packages are the user's.
        packages=("torch",),
        measures=measured.measures,
        summary=measured.summary,
    )

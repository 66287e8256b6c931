"""What both kinds of training do around their attempts: join Ray, relay output, handle a stop, bring the model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ray

from raysm.bootstrap.environment import Environment, inherited
from raysm.contract.machine import let_others_first
from raysm.contract.payload import Payload
from raysm.workloads.nodes import Node, cluster_nodes
from raysm.workloads.training.launch.attempts import Attempt, Policy, Stop, Stopped, say, train
from raysm.workloads.training.launch.output import Relay
from raysm.workloads.training.launch.placement import Group, Place
from raysm.workloads.training.results.result import download_model, write_manifest

__all__ = ["Launch", "launch_training"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What the attempts of one training work with."""

    payload: Payload
    """The request, and where the source lies."""
    environment: Environment
    """What the head was told."""
    relay: Relay
    """Takes the workers' output."""
    stop: Stop
    """Whether a stop was asked for."""
    threads: int | None
    """OMP_NUM_THREADS where the user has set it."""

    @property
    def silence_s(self) -> float:
        """How long after a failure an instance may take to answer before it counts as lost."""
        # As long as anywhere else: 8 s, which stood here, is what a worker of Ray takes to start on a busy machine.
        return self.payload.request.cluster.silence_s

    def group(self, places: tuple[Place, ...], attempt: int, max_restarts: int, master_port: int = 0) -> Group:
        """Return what all workers of an attempt share."""
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
        payload: The request, and where the source lies.
        environment: What the head was told.
        place: Gives the workers to instances.
        max_restarts: How often the workers are started anew.
        attempts: Makes what attempts the training, once Ray is joined.

    Raises:
        WorkerFailed: A worker failed more often than it may.
        InstanceLost: An instance went away, and the job does not go on without it.
        InvalidRequest: The workers do not fit the instances, or asked for what cannot be.
        SystemExit: A stop was asked for, and the workers did not all end with 0.
    """
    # Before Ray sets it for this process.
    threads = inherited().get("OMP_NUM_THREADS", "")
    let_others_first()
    with Stop() as stop:
        # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
        ray.init(address="auto", log_to_driver=False, configure_logging=False)
        stop.listen()
        # At this address the head's Ray is reached, so the workers' output finds it too.
        relay = Relay(ray.util.get_node_ip_address())
        launch = Launch(
            payload=payload,
            environment=environment,
            relay=relay,
            stop=stop,
            threads=int(threads) if threads.isdigit() else None,
        )
        policy = Policy(max_restarts=max_restarts, on_instance_loss=payload.request.cluster.on_instance_loss)
        try:
            _train(launch, attempts(launch), place, policy)
        finally:
            relay.close()
            ray.shutdown()


def _train(
    launch: Launch, attempt: Attempt, place: Callable[[Sequence[Node]], tuple[Place, ...]], policy: Policy
) -> None:
    # The clock runs over restarts: what they cost belongs to the training's time.
    model, begun_s = launch.environment.paths.model, time.monotonic()
    earlier: list[tuple[Place, ...]] = []

    def remembered(places: tuple[Place, ...], number: int) -> None:
        # For a stop: the model to bring is where rank 0 was in the last attempt.
        earlier[:] = [places]
        attempt(places, number)

    try:
        places = train(
            remembered, nodes=lambda: cluster_nodes(), place=place, policy=policy, say=say, sleep=launch.stop.sleep
        )
    except Stopped as stopped:
        if earlier:
            download_model(earlier[0][0].node, launch.environment, say)
        if not stopped.clean:
            raise SystemExit(143) from None
    else:
        training_s = time.monotonic() - begun_s
        download_model(places[0].node, launch.environment, say)
        write_manifest(launch.payload.request, model, tuple(item.node.host for item in places), training_s)

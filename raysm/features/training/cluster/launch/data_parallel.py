"""Run a training loop on all instances that train, by Ray Train's TorchTrainer.

Ray Train places the workers, makes the process group, chooses the devices and watches the workers;
raysm says where they are placed, what their failure means, and starts them again.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError

from raysm.core.protocol.names import LABEL_HOST
from raysm.core.protocol.payload import Payload
from raysm.errors import RayFailed, WorkerFailed
from raysm.features.training.cluster.launch import state_folders
from raysm.features.training.cluster.launch.failure_attribution import (
    Failure,
    as_refusal,
    find_cause,
)
from raysm.features.training.cluster.launch.launch import (
    Launch,
    NodesLost,
    Stopped,
    grace_of_workers,
    launch_training,
    say,
)
from raysm.features.training.cluster.launch.output import OUT, STOP
from raysm.features.training.cluster.launch.placement import Place, place
from raysm.features.training.request import TrainLoop
from raysm.instance.environment import Environment, tell
from raysm.instance.ray_internals import (
    FAILURE_LIMITS,
    SCALING_POLICY,
    TRAIN_CALLBACKS,
    TRAIN_VARIABLES,
    spare_options,
)
from raysm.instance.work.nodes import Node, ask_every_node
from raysm.instance.work.runner import Runner, naming_what_is_missing

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer


class DataParallelRunner(Runner[TrainLoop]):
    def run(self, address: str) -> None:
        # Ray Train does not name the module that it lacks. What a loop lacks comes as WorkerFailed.
        with naming_what_is_missing(self.workload, "what Ray Train needs (pandas, among others)"):
            run_data_parallel(self.workload, self.payload, self.environment)


FIT_POLL_S = 0.1
SHUTDOWN_TIMEOUT = "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S"
"""Seconds that ranks have to leave the process group, by default 30. One that waits there for a
rank that has failed does not leave it."""
RAY_TRAIN = {
    # Seconds between two checks of the workers by the controller.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # Lines go to the head by raysm's relay, as they are.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    # These ask Ray's dashboard and autoscaler for what the bootstrap knows sooner.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    SHUTDOWN_TIMEOUT: "5",
}
UNUSED = ("DatasetsCallback", "PlacementGroupCleanerCallback")
"""Callbacks of Ray Train that raysm leaves out. The first imports Ray Data just when the workers
start. The second asks the dashboard once a second whether the controller lives, so that the whole
dashboard would start: twelve processes, and an agent on every instance. What it removes ends with
the job.
"""
OWN_RETRIES = {"controller_failure_limit": 1, "max_preemption_failures": 0}
"""Ray Train retries nothing by itself: ``launch`` does, and logs it."""


def run_data_parallel(workload: TrainLoop, payload: Payload, environment: Environment) -> None:
    tell(RAY_TRAIN)
    # Its controller, a process of its own, gets only the variables that it names.
    names = TRAIN_VARIABLES.find()
    if isinstance(names, set):
        names.add(SHUTDOWN_TIMEOUT)
    launch_training(
        payload,
        environment,
        place=partial(
            place, workers_per_instance=workload.workers_per_instance, workers=workload.workers
        ),
        max_restarts=workload.max_restarts,
        attempts=lambda launch: _Loop(workload, launch).attempt,
    )


class _Loop:
    def __init__(self, workload: TrainLoop, launch: Launch) -> None:
        self._workload = workload
        self._launch = launch
        self._relay = launch.relay
        self._stop = launch.stop

    def attempt(self, places: tuple[Place, ...], number: int) -> None:
        if number == 0 and self._launch.environment.has_checkpoints:
            paths = self._launch.environment.paths
            # The loop may save files there itself, beside the checkpoints of raysm.training.
            if differences := state_folders.describe_restored(
                paths, [item.node.host for item in places]
            ):
                say(f"{differences}. {state_folders.RISK}")
        error = self._fit(places, number)
        self._relay.drain()
        if self._stop.asked:
            raise Stopped(clean=error is None)
        if error is None:
            return
        lost = _unresponsive(
            [item.node for item in places], self._launch.payload.request.cluster.silence_s
        )
        if lost:
            raise NodesLost(lost, "it does not answer any more")
        failure = _failure(error, places)
        if isinstance(failure, WorkerFailed):
            raise as_refusal(failure) or failure
        raise failure

    def _fit(self, places: tuple[Place, ...], number: int) -> Exception | None:
        trainer = self._trainer(places, number)
        raised: list[Exception] = []

        def fit() -> None:
            try:
                trainer.fit()
            except Exception as error:  # judged by the caller, in the main thread
                raised.append(error)

        # In a thread, because SIGTERM must be noticed while it trains.
        fitting = threading.Thread(target=fit, daemon=True, name="ray-train")
        fitting.start()
        give_up: float | None = None
        while fitting.is_alive() and (give_up is None or time.monotonic() < give_up):
            if self._stop.asked and give_up is None:
                self._relay.send(OUT, STOP)
                give_up = time.monotonic() + grace_of_workers(
                    self._launch.payload.request.chosen_grace_s
                )
            fitting.join(FIT_POLL_S)
        if fitting.is_alive():
            return RayFailed("the workers did not stop within their grace")
        return raised[0] if raised else None

    def _trainer(self, places: tuple[Place, ...], number: int) -> "TorchTrainer":
        from ray.train import FailureConfig, RunConfig, ScalingConfig

        from raysm.features.training.cluster.launch.loop_worker import WorkerSpec, run_loop

        workers = sum(item.workers for item in places)
        # A fraction if an instance has fewer CPUs than workers: Ray would wait for whole ones
        # forever.
        cpus = min(1.0, min(item.node.cpus / item.workers for item in places))
        spec = WorkerSpec(
            name=self._workload.name,
            places=places,
            group=self._launch.group(places, number, self._workload.max_restarts),
            wire=self._relay.wire,
            precision=self._workload.precision,
            threads=self._launch.threads,
        )
        return trainer_class()(
            run_loop,
            train_loop_config={"spec": spec},
            scaling_config=ScalingConfig(
                num_workers=workers,
                use_gpu=places[0].gpus > 0,
                resources_per_worker={"CPU": cpus} | ({"GPU": 1} if places[0].gpus else {}),
                label_selector=[
                    {LABEL_HOST: item.node.host} for item in places for _ in item.ranks
                ],
            ),
            run_config=RunConfig(
                name=f"attempt-{number}",
                # Nothing is kept there: checkpoints are raysm.training's.
                storage_path=str(self._launch.environment.paths.scratch / "ray-train"),
                failure_config=FailureConfig(
                    max_failures=0, **spare_options(FAILURE_LIMITS, OWN_RETRIES)
                ),
            ),
        )


def trainer_class() -> "type[TorchTrainer]":
    """Return Ray Train's trainer without ``UNUSED`` and without requests to the autoscaler.

    Both take 17 of the 64 CPU seconds of a short training. If Ray lacks one of the names, nothing
    is left out.
    """
    from ray.train.torch import TorchTrainer

    if TRAIN_CALLBACKS.find() is None:
        return TorchTrainer  # type: ignore[no-any-return]

    class Trainer(TorchTrainer):  # type: ignore[misc]
        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [callback for callback in callbacks if type(callback).__name__ not in UNUSED]

        def _initialize_and_run_controller(self, **arguments: Any) -> Any:
            return super()._initialize_and_run_controller(**without_autoscaler(arguments))

    return Trainer


def _unresponsive(nodes: Sequence[Node], silence_s: float) -> list[Node]:
    node_of = {
        answer: node
        for node, answer in ask_every_node(lambda: True, nodes=nodes, max_retries=0).items()
    }
    ready, silent = ray.wait(list(node_of), num_returns=len(node_of), timeout=silence_s)
    failed = []
    for reference in ready:
        try:
            ray.get(reference)
        except RayError:
            failed.append(node_of[reference])
    own_id: str = ray.get_runtime_context().get_node_id()
    return lost_nodes([node_of[reference] for reference in silent], failed, own_id)


def lost_nodes(silent: Sequence[Node], failed: Sequence[Node], own_id: str) -> list[Node]:
    """Return the lost instances: those that failed, and those that were silent.

    If this instance was silent too, only the instances that failed count as lost.
    """
    # An answer takes a new process. If this instance starts none in that time either, the machines
    # are overloaded, and silence means nothing: the workers' own errors say why they failed.
    is_overloaded = any(node.node_id == own_id for node in silent)
    return [*failed] if is_overloaded else [*silent, *failed]


def _failure(error: Exception, places: tuple[Place, ...]) -> Exception:
    from ray.train import WorkerGroupError

    from raysm.features.training.cluster.launch.loop_worker import LoopFailed

    if not isinstance(error, WorkerGroupError):
        return RayFailed(f"Ray Train could not run the workers: {type(error).__name__}: {error}")
    # A process that died reports nothing; the others fail because it is gone.
    for rank, failed in sorted(error.worker_failures.items()):
        cause = getattr(failed, "health_check_failure", failed)
        if isinstance(cause, RayActorError):
            host = next(item.node.host for item in places if rank in item.ranks)
            # Ray Train does not pass on how the process ended.
            text = (
                "its process ended: most likely memory was short; else it crashed, was killed, or "
                "left by os._exit"
            )
            return WorkerFailed(rank, host, text, "", "", 137)
    failures = [
        failed for failed in error.worker_failures.values() if isinstance(failed, LoopFailed)
    ]
    cause = find_cause(
        Failure(error=one.error, at_s=one.at_s, was_ended=one.stopped) for one in failures
    )
    return cause or RayFailed(f"Ray Train could not run the workers: {error}")


def without_autoscaler(arguments: Mapping[str, Any]) -> dict[str, Any]:
    kind: Any = SCALING_POLICY.find()
    policy: Any = arguments.get("scaling_policy")
    if kind is None or type(policy) is not kind:
        return dict(arguments)

    # Defined here, where Ray's own class is known to fit: pickled by value, it travels to the
    # controller.
    class FixedSize(kind):  # type: ignore[misc]
        def after_controller_start(self, train_run_context: Any) -> None:
            """Ask the autoscaler for nothing."""

        def _maybe_send_resource_request(self) -> None:
            """Ask for nothing later either."""

    return {**arguments, "scaling_policy": FixedSize(policy.scaling_config)}

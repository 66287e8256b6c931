"""Let Ray Train save its work after SIGTERM.

Ray's own handler of SIGTERM ends the driver at once, and a training that Ray Train runs with it.
While a trainer runs, the driver drains Ray's nodes instead, with the end of the grace period as
their deadline. Ray Train's workers then learn it by ``ray.train.get_preemption_info()``, and end
when they have saved their work.

Ray starts no new tasks on a node that drains, and ends a node that drains and is idle. So only a
driver that waits for Ray Train drains the nodes: other programs may need tasks for their
checkpoint. An actor on each node keeps the node until the driver has ended. Ray Train's own actor,
which tells the workers, starts with them: if it is still starting, the nodes drain when it runs,
or after a quarter of the grace period.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from raysm.core.protocol.names import counted
from raysm.instance import ray_internals
from raysm.instance.log import remark
from raysm.instance.work.after_import import AfterImport

READY_SHARE = 0.5
"""The share of the grace period that actors have to start. A process starts in one or two seconds,
and takes longer on a busy machine; a node without an actor that keeps it is not drained."""
WATCHER_SHARE = 0.25
"""The share of the grace period that Ray Train's own actor has to start. The nodes drain then even
without it, because Ray Train may start it late, and the program may use the information itself."""
POLL_S = 0.1

Handler = Callable[[int, FrameType | None], object]


def drain_while_ray_train_runs(grace_s: float) -> None:
    """Let SIGTERM drain Ray's nodes while Ray Train runs in the main thread of this process.

    Call it before Ray Train is imported. A handler of SIGTERM that the user has set stays.
    """
    run_trainer = ray_internals.RUN_TRAINER

    def adapt(module: ModuleType) -> None:
        run_trainer.replace(lambda run: draining(run, grace_s))

    sys.meta_path.insert(0, AfterImport(run_trainer.module, adapt))


def draining(run: Callable[..., Any], grace_s: float) -> Callable[..., Any]:
    """Return ``run`` with a handler of SIGTERM that drains Ray's nodes in place of Ray's own."""

    def run_draining(*args: Any, **named: Any) -> Any:
        own: Any = signal.getsignal(signal.SIGTERM)
        is_rays = getattr(own, "__module__", None) == ray_internals.LOGGER
        if threading.current_thread() is not threading.main_thread() or not is_rays:
            return run(*args, **named)
        drain = _Drain(own, grace_s)
        signal.signal(signal.SIGTERM, drain)
        try:
            return run(*args, **named)
        finally:
            # A training that has saved its work leaves a cluster that drains until the driver ends.
            if not drain.is_asked:
                signal.signal(signal.SIGTERM, own)

    return run_draining


class _Drain:
    """A handler of SIGTERM: the first signal drains the nodes, a second one ends the process."""

    def __init__(self, own: Handler, grace_s: float) -> None:
        self._own, self._grace_s = own, grace_s
        self.is_asked = False
        self._is_supported = ray_internals.have(
            ray_internals.PREEMPTION_INFO, ray_internals.DRAIN_NODE, ray_internals.DRAIN_REASONS
        )
        self._keepers: list[Any] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._is_supported:
            remark(
                "this release of Ray cannot tell Ray Train that the instances end, so the training"
                " ends now"
            )
        if self.is_asked or not self._is_supported:
            self._own(number, frame)
            return
        self.is_asked = True
        deadline_s = time.time() + self._grace_s
        # A thread: the main thread may be within a call of Ray that must not be entered again.
        threading.Thread(target=self._drain, args=[deadline_s], daemon=True, name="drain").start()

    def _drain(self, deadline_s: float) -> None:
        try:
            count = self._drain_nodes(int(deadline_s * 1000))
        except Exception as error:  # of Ray, which may be ending too
            remark(f"Ray's nodes could not be drained: {type(error).__name__}: {error}")
            return
        if count == 0:
            remark(
                "no node of Ray drains, because no actor started on one in time: Ray Train's"
                f" workers are not told that the instances end in {deadline_s - time.time():.0f} s"
            )
            return
        remark(
            f"Ray's {counted(count, 'node')} drain and end in {deadline_s - time.time():.0f} s:"
            " ray.train.get_preemption_info() says so in the workers of Ray Train"
        )

    def _drain_nodes(self, deadline_ms: int) -> int:
        """Drain all nodes of Ray, each once an actor keeps it; return their number."""
        # Imported now, because a driver whose script uses no Ray does not import it.
        import ray

        from raysm.instance.work.nodes import only_on

        class Keeper:
            def ready(self) -> None: ...

        keeper = ray.remote(Keeper)
        waiting = {}
        for node in ray.nodes():
            if node["Alive"]:
                strategy = only_on(node["NodeID"])
                actor = keeper.options(num_cpus=0, scheduling_strategy=strategy).remote()
                # An actor ends with its last reference; this object lives as long as the driver.
                self._keepers.append(actor)
                waiting[actor.ready.remote()] = node["NodeID"]
        client = ray_internals.GCS_CLIENT.find()(address=ray.get_runtime_context().gcs_address)
        reason = ray_internals.DRAIN_REASONS.find().Value("DRAIN_NODE_REASON_PREEMPTION")
        text = "SageMaker ends the job's instances"
        count = 0
        now_s = time.monotonic()
        drain_s = now_s + WATCHER_SHARE * self._grace_s
        give_up_s = now_s + READY_SHARE * self._grace_s
        while _is_watcher_starting() and time.monotonic() < drain_s:
            time.sleep(POLL_S)
        while waiting and (left_s := give_up_s - time.monotonic()) > 0:
            kept, _ = ray.wait(list(waiting), timeout=left_s)
            for call in kept:
                client.drain_node(waiting.pop(call), reason, text, deadline_ms)
                count += 1
        return count


def _is_watcher_starting() -> bool:
    find_actors = ray_internals.ACTORS.find()
    return find_actors is not None and any(
        actor["ActorClassName"] == ray_internals.PREEMPTION_WATCHER
        for state in ("DEPENDENCIES_UNREADY", "PENDING_CREATION")
        for actor in find_actors(actor_state_name=state).values()
    )

"""A trial in several processes that train together.

Rank 0 is in the trial's own process, the others are in actors. Each worker has a bundle of the
trial's placement group, so a trial begins once there is room for all of its workers. Ray Train
inside a trial reserves nothing: trials that each hold what others wait for would hang
(https://github.com/ray-project/ray/issues/54305).
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import ray
import torch.distributed as dist
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysm.core.protocol import stack_signal
from raysm.errors import WorkerFailed
from raysm.features.sweep.cluster.trial import Assignment, TrialRun, begin_in, call, trial_folder
from raysm.features.sweep.request import FunctionSweep
from raysm.features.training.cluster.loop import session
from raysm.instance import environment
from raysm.instance.work.report import Listener


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    workload: FunctionSweep
    rank: int
    address: str
    port: int
    assignment: Assignment
    seed: int | None

    @property
    def variables(self) -> Mapping[str, str]:
        """Torchrun's variables of a worker that is alone on its node and sees only its own GPU."""
        rank = str(self.rank)
        size = str(self.workload.workers)
        return {
            "RANK": rank,
            "LOCAL_RANK": "0",
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": rank,
            "NODE_RANK": rank,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            # The store is open already, as under torchrun's agent, so that no port must be guessed.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "OMP_NUM_THREADS": str(max(1, int(self.workload.cpus))),
        }


def run_group(run: TrialRun) -> Any:
    workload = cast(FunctionSweep, run.workload)
    group = ray.util.get_current_placement_group()
    gpus = float(group.bundle_specs[0].get("GPU", 0))
    others = [
        ray.remote(_Worker)
        .options(
            num_cpus=workload.cpus,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=rank
            ),
        )
        .remote()
        for rank in range(1, workload.workers)
    ]
    address = ray.util.get_node_ip_address()
    # Port 0 lets the system choose a free one.
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, 0, is_master=True, wait_for_workers=False
    )
    common: dict[str, Any] = {"workload": workload, "assignment": run.assignment, "seed": run.seed}
    members = [
        _Member(rank=rank, address=address, port=store.port, **common)
        for rank in range(workload.workers)
    ]
    # Started before rank 0, which waits for all of them in init_process_group.
    running = [actor.run.remote(member) for actor, member in zip(others, members[1:], strict=True)]
    failures: list[WorkerFailed] = []
    watching = threading.Thread(
        target=_watch, args=[running, others, failures], daemon=True, name="raysm-group"
    )
    watching.start()
    try:
        value = _work(members[0], run.take)
        watching.join()
    except Exception:
        # If another worker failed first, its error is the reason for rank 0's.
        watching.join(1)
        if failures:
            raise failures[0] from None
        raise
    finally:
        for actor in others:
            ray.kill(actor)
    if failures:
        raise failures[0]
    return value


def _watch(running: list[Any], others: list[Any], failures: list[WorkerFailed]) -> None:
    """Wait for the other workers.

    Once one fails, kill the rest, so that rank 0 does not wait for them.
    """
    waiting = {reference: rank for rank, reference in enumerate(running, 1)}
    while waiting:
        (ready, *_), _ = ray.wait(list(waiting))
        rank = waiting.pop(ready)
        try:
            ray.get(ready)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            failures.append(WorkerFailed(rank, "", type(cause).__name__, str(cause), str(error), 1))
            for actor in others:
                ray.kill(actor)
            return


class _Worker:
    def run(self, member: _Member) -> None:
        stack_signal.register(f"trial {member.assignment.number}, rank {member.rank}")
        instance = environment.read()
        with trial_folder(instance, f"{member.assignment.number}-rank-{member.rank}") as folder:
            begin_in(folder, member.assignment, member.seed)
            _work(member, lambda report: None)


def _work(member: _Member, take: Listener) -> Any:
    environment.tell(member.variables)
    # Makes the process group; the function may then use torch's own calls, or raysm.training.
    session.begin()
    try:
        return call(environment.read(), member.workload, member.assignment.params, take)
    finally:
        dist.destroy_process_group()

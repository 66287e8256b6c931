"""A trial in several processes that train together: rank 0 in the trial's own, the others beside it.

Ray Train inside of a trial of Tune places its workers where the trial has reserved nothing: trials that all hold the
room that others wait for hang, and what it has placed stays when a trial is ended early
(https://github.com/ray-project/ray/issues/54305). Here every worker has a bundle of the trial's own placement group:
the trial begins when there is room for all of them, and they end with it. What flows in is a ``TrialRun``, what flows
out is rank 0's value.
"""

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import ray
import torch.distributed as dist
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysm.bootstrap import environment
from raysm.contract import payload
from raysm.errors import WorkerFailed
from raysm.request.sweep import FunctionSweep
from raysm.workloads.pickles import unpickled
from raysm.workloads.sweep.calling import call, end_training
from raysm.workloads.sweep.reports import Listener, Report, listening
from raysm.workloads.sweep.trial import TrialRun, begin_in, trial_folder
from raysm.workloads.training.loop import session

__all__ = ["free_port", "run_group"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    """What one worker of a trial is told."""

    workload: FunctionSweep
    rank: int
    address: str
    port: int
    params: Mapping[str, Any]
    seed: int | None

    @property
    def variables(self) -> dict[str, str]:
        """torchrun's, of a worker that sees its own GPU alone, and so is the only one of its node."""
        rank, size = str(self.rank), str(self.workload.workers)
        return {
            "RANK": rank,
            # Each has its own bundle, and so sees the one GPU that is its own as number 0.
            "LOCAL_RANK": "0",
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": rank,
            "NODE_RANK": rank,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            # There is no agent of torchrun: rank 0 itself opens the store at MASTER_PORT.
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "OMP_NUM_THREADS": str(max(1, int(self.workload.cpus))),
        }


def run_group(run: TrialRun) -> Any:
    """Call the function in all workers of a trial at once; return rank 0's value.

    Raises:
        WorkerFailed: One of the others failed first.
        Exception: What the function raised in rank 0.
    """
    workload = cast(FunctionSweep, run.workload)
    # Rank 0 stays in the trial's process, where Tune takes reports and ends it.
    others, members = _others(run, workload)
    failures: list[WorkerFailed] = []
    # Before rank 0 begins: it waits in init_process_group for all of them.
    running = [actor.run.remote(member) for actor, member in zip(others, members[1:], strict=True)]
    watching = threading.Thread(target=_watch, args=[running, others, failures], daemon=True, name="raysm-group")
    watching.start()
    try:
        value = _work(members[0], run.take)
        watching.join()
    except Exception:
        # Rank 0 fails for want of one that failed before: that one's reason is the trial's.
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


def _others(run: TrialRun, workload: FunctionSweep) -> tuple[list[Any], list[_Member]]:
    group = ray.util.get_current_placement_group()
    kind = ray.remote(_Worker)
    gpus = _gpus(group)
    others = [
        kind.options(
            num_cpus=workload.cpus,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        ).remote(run.number, run.checkpoint)
        for rank in range(1, workload.workers)
    ]
    # Free now, and taken when torch listens: nothing holds it meanwhile, and a clash fails the trial, not the sweep.
    address, port = ray.util.get_node_ip_address(), free_port()
    members = [
        _Member(workload=workload, rank=rank, address=address, port=port, params=run.params, seed=run.seed)
        for rank in range(workload.workers)
    ]
    return others, members


def _gpus(group: Any) -> float:
    """Return the GPUs of each worker, as its bundle of the trial's placement group has them."""
    return float(group.bundle_specs[0].get("GPU", 0))


def _watch(running: list[Any], others: list[Any], failures: list[WorkerFailed]) -> None:
    """Wait for the other workers; once one fails, end the rest, so that rank 0 does not wait for them for ever."""
    waiting = {reference: rank for rank, reference in enumerate(running, 1)}
    while waiting:
        # In the order in which they end: the one that fails first is the reason for the others.
        (ready, *_), _ = ray.wait(list(waiting))
        rank = waiting.pop(ready)
        try:
            ray.get(ready)
        except ray.exceptions.RayError as error:
            failures.append(_failed(rank, error))
            for actor in others:
                ray.kill(actor)
            return


def _failed(rank: int, error: Exception) -> WorkerFailed:
    cause = getattr(error, "cause", None) or error
    return WorkerFailed(rank, "", type(cause).__name__, str(cause), str(error), 1)


class _Worker:
    """One of the other workers; an actor."""

    def __init__(self, number: int, checkpoint: Any) -> None:
        self._number, self._checkpoint = number, checkpoint

    def run(self, member: _Member) -> None:
        instance = environment.read()
        with trial_folder(instance, f"{self._number}-rank-{member.rank}") as folder:
            begin_in(folder, self._checkpoint, member.seed)
            _work(member, _ignore)


def _work(member: _Member, take: Listener) -> Any:
    instance = environment.read()
    environment.tell(member.variables)
    function, _, _ = unpickled(instance.payload / payload.FUNCTION, member.workload.name)
    # It makes the process group; the function may use torch's own, or raysm.training.
    session.begin()
    try:
        with listening(take):
            return call(function, member.params, takes_config=member.workload.takes_config)
    finally:
        end_training()
        dist.destroy_process_group()


def _ignore(report: Report) -> None:
    """All workers run the same lines; the reports of rank 0 count."""


def free_port() -> int:
    """Return a port that nothing listens on here."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port

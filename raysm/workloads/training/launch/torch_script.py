"""Run a script written for torchrun: an agent on each instance, the script in processes of its own.

The agents are plain actors: a script makes its own process group, so Ray Train would only cost time (5 s before the
first worker runs on two cores, measured, against 0.2 s).
"""

import time
from collections.abc import Collection, Sequence
from functools import partial

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from raysm.bootstrap.environment import Environment
from raysm.contract.payload import Payload
from raysm.errors import WorkerFailed
from raysm.request import TorchScript
from raysm.workloads.nodes import Node, only_on
from raysm.workloads.training.launch.agent import END_GRACE_S, Agent, Exit, Task
from raysm.workloads.training.launch.attempts import NodesLost, Stopped, grace_of_workers
from raysm.workloads.training.launch.failure_attribution import (
    CAUSE_S,
    Failure,
    as_refusal,
    attribute_failure,
    blame_early_end,
    find_cause,
    is_consequence,
)
from raysm.workloads.training.launch.launch import Launch, launch_training
from raysm.workloads.training.launch.output import AGENT, END, STOP
from raysm.workloads.training.launch.placement import Place, place

__all__ = ["is_settled", "run_torch_script"]

WAIT_S = 0.5
"""How late a stop may be heard; the end of the workers is heard at once."""


def run_torch_script(workload: TorchScript, payload: Payload, environment: Environment) -> None:
    """Run the script on all instances that train, to its end; ``launch_training`` says what it raises."""
    launch_training(
        payload,
        environment,
        place=partial(place, workers_per_instance=workload.workers_per_instance, spawns=workload.spawns),
        max_restarts=workload.max_restarts,
        attempts=lambda launch: _Script(workload, launch).attempt,
    )


class _Script:
    """One run of the script, over all its attempts."""

    def __init__(self, workload: TorchScript, launch: Launch) -> None:
        self._workload, self._launch = workload, launch
        self._relay, self._stop = launch.relay, launch.stop
        self._grace_s = grace_of_workers(launch.payload.request.chosen_grace_s)
        self._agents: dict[str, ActorHandle] = {}

    def attempt(self, places: tuple[Place, ...], number: int) -> None:
        self._relay.forget()
        try:
            tasks = self._tasks(places, number)
        except RayActorError as error:
            # The first place's: of the other agents nothing has been asked yet.
            raise NodesLost([places[0].node], "its worker process died") from error
        exits, lost = self._wait(tasks)
        self._relay.drain()
        if self._stop.asked:
            raise Stopped(clean=len(exits) == tasks[0].group.world_size and not any(item.status for item in exits))
        if lost:
            raise NodesLost(lost, "it does not answer any more")
        cause = self._cause(exits, places)
        if cause is not None:
            raise as_refusal(cause) or cause

    def _cause(self, exits: Collection[Exit], places: Sequence[Place]) -> WorkerFailed | None:
        hosts = {rank: item.node.host for item in places for rank in item.ranks}
        cause = find_cause(
            Failure(
                error=attribute_failure(item.rank, hosts[item.rank], item.status, self._relay.tail(item.rank)),
                at_s=item.at_s,
                was_ended=item.was_ended,
            )
            for item in exits
            if item.status
        )
        ended_well = [(item.rank, hosts[item.rank]) for item in exits if not item.status and not item.was_ended]
        return None if cause is None else blame_early_end(cause, ended_well)

    def _tasks(self, places: tuple[Place, ...], number: int) -> list[Task]:
        agents = [self._agent(item.node, item.gpus) for item in places]
        # On the instance of rank 0, whose address the workers are told with it: the port must be free there.
        port = ray.get(agents[0].free_port.remote())
        group = self._launch.group(places, number, self._workload.max_restarts, port)
        return [
            Task(
                place=item,
                script=self._workload.script,
                args=self._launch.payload.request.script_args,
                in_state=self._workload.in_state,
                fill=self._workload.spawns,
                group=group,
                wire=self._relay.wire,
                threads=self._launch.threads,
                grace_s=self._grace_s,
            )
            for item in places
        ]

    def _agent(self, node: Node, gpus: int = 0) -> ActorHandle:
        if node.node_id not in self._agents:
            # num_gpus makes Ray show it the GPUs of its workers together; each takes that of its LOCAL_RANK.
            self._agents[node.node_id] = (
                ray.remote(Agent)
                .options(
                    # No CPU: they are all its workers', and the agent only waits for them.
                    num_cpus=0,
                    num_gpus=gpus,
                    scheduling_strategy=only_on(node.node_id),
                )
                .remote()
            )
        return self._agents[node.node_id]

    def _wait(self, tasks: list[Task]) -> tuple[list[Exit], list[Node]]:
        """Run all tasks to their end; end the others once one failed, all of them once a stop is asked for."""
        running = {self._agent(task.place.node).run.remote(task): task for task in tasks}
        places = [task.place for task in tasks]
        exits: list[Exit] = []
        lost: list[Node] = []
        told_to_stop = False
        give_up: float | None = None
        failed_at: float | None = None
        while running and (give_up is None or time.monotonic() < give_up):
            if self._stop.asked and not told_to_stop:
                told_to_stop = True
                self._relay.tell(AGENT, STOP)
                give_up = time.monotonic() + self._grace_s + END_GRACE_S
            ready, _ = ray.wait(list(running), num_returns=1, timeout=WAIT_S)
            for reference in ready:
                node = running.pop(reference).place.node
                try:
                    exits += ray.get(reference)
                except RayActorError:
                    lost.append(node)
                    del self._agents[node.node_id]
            if give_up is None and (lost or any(item.status for item in exits)):
                failed_at = failed_at or time.monotonic()
                if lost or is_settled(self._cause(exits, places), time.monotonic() - failed_at):
                    self._relay.tell(AGENT, END)
                    give_up = time.monotonic() + self._launch.silence_s
        # Whoever has not ended in its time has not answered either: it counts as lost.
        return exits, lost + [task.place.node for task in running.values()]


def is_settled(cause: WorkerFailed | None, failed_for_s: float) -> bool:
    """Return whether no better reason than ``cause`` is waited for, so long after the first failure that was seen."""
    # Whose end made it fail may take a moment more to end: ended now, it could not say why.
    return cause is None or not is_consequence(cause) or failed_for_s > CAUSE_S

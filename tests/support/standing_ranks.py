"""Ranks that stay: each takes one drawn training after the other, so that an example of a property costs no start.

``standing_ranks(folder)`` yields what a test calls; ``main`` is what each rank runs.
"""

import contextlib
import os
import pickle
import signal
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from raysm import training
from raysm.errors import InvalidInput, InvalidRequest
from raysm.workloads.training.loop import session as sessions
from tests.support.nursery import nursery

DEADLINE_S = 60.0
"""For one training of all ranks, which takes a second on an idle machine."""

GRACE_S = 5.0
"""For the other ranks, when one has failed."""


def train(drawn, parallel, **options):
    """Train what was drawn from the beginning; return the losses and, on rank 0, the final weights."""
    rank = training.rank()
    model = drawn.model()
    with torch.no_grad():
        for parameter in set(model.parameters()):
            parameter.add_(rank)  # only the weights of rank 0 count
    optimizer = drawn.optimizer(model)
    given = {"blocks": "layers", "loss": F.cross_entropy, "max_norm": drawn.max_norm} | options
    training.prepare(model, optimizer, parallel, **given)
    order = {"batch_size": drawn.batch_size, "epochs": drawn.epochs, "seed": drawn.seed}
    losses = [training.step(batch) for batch in training.batches(drawn.dataset(), **order)]
    return losses, sessions.current().prepared.full_state_dict()


class StandingRanks:
    """Groups of ranks by their number, started when they are first asked for."""

    def __init__(self, ranks, folder):
        self._nursery, self._folder = ranks, folder
        self._groups = {}
        self._count = 0

    def run(self, workers, function, *arguments):
        """Call a function on each of so many ranks; return what each returned, by rank.

        A refusal (InvalidRequest, InvalidInput) is returned like a result. Any other error fails the test, and so does
        a rank that does not answer; the group then makes place for another.
        """
        group = self._groups.get(workers)
        if group is None:
            folder = self._folder / f"{workers}-{self._count}"
            group = self._groups[workers] = self._nursery.start(folder, [folder], workers=workers), folder
        started, folder = group
        self._count += 1
        write(folder / f"case-{self._count}", (self._count, function, arguments))
        answers = [folder / f"answer-{self._count}-{rank}" for rank in range(workers)]
        results, deadline_s = {}, time.monotonic() + DEADLINE_S
        while len(results) < workers and time.monotonic() < deadline_s:
            for rank, answer in enumerate(answers):
                if rank not in results and answer.exists():
                    results[rank] = pickle.loads(answer.read_bytes())
                    if isinstance(results[rank], (Exception, str)):
                        deadline_s = min(deadline_s, time.monotonic() + GRACE_S)
            time.sleep(0.002)
        failed = [result for result in results.values() if isinstance(result, str)]
        if failed or len(results) < workers:
            del self._groups[workers]
            started.kill(range(workers), signal.SIGKILL)
            started.exits()
            silent = [rank for rank in range(workers) if rank not in results]
            raise AssertionError("\n".join([f"ranks {silent} did not answer", *map(str, results.values())]))
        return [results[rank] for rank in range(workers)]


@contextlib.contextmanager
def standing_ranks(folder):
    """Yield ``StandingRanks``; afterwards none is left."""
    with nursery(__name__) as ranks:
        yield StandingRanks(ranks, folder)


def write(path, value):
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(pickle.dumps(value))
    partial.rename(path)


def main(arguments):
    """Be one rank: answer each case in the folder, in their order, until killed, or left behind by a test that was."""
    torch.set_num_threads(1)
    folder, done = Path(arguments[0]), set()
    nursery_pid = os.getppid()
    while os.getppid() == nursery_pid:
        for case in sorted(set(folder.glob("case-*")) - done):
            number, function, given = pickle.loads(case.read_bytes())
            done.add(case)
            answer(folder, number, function, given)
        time.sleep(0.002)


def answer(folder, number, function, given):
    variables = sessions.environment.inherited()
    rank, workers = int(variables["RANK"]), int(variables["WORLD_SIZE"])
    store = f"file://{folder}/store-{number}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=workers)
    try:
        result = function(*given)
    except (InvalidRequest, InvalidInput) as refusal:
        result = refusal
    except BaseException:
        result = f"rank {rank}:\n{traceback.format_exc()}"
    # Before the groups are left: a rank that failed would wait for the others.
    write(folder / f"answer-{number}-{rank}", result)
    if isinstance(result, str):
        signal.pause()
    sessions.end()
    dist.destroy_process_group()

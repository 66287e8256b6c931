"""Ranks that stay: each takes one drawn training after the other, so that an example of a property costs no start.

``StandingRanks`` is what a test calls; ``main`` is what each rank runs. A rank waits at a pipe of
its own for the
number of the next case: ranks that looked for it would take half a core from whatever else is
tested.
"""

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
from raysm.features.training.cluster.loop import session as sessions

DEADLINE_S = 300.0
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
    return losses, sessions.current().trainer.full_state_dict()


class StandingRanks:
    """Groups of ranks by their number, started when they are first asked for; they end with the process that asks."""

    def __init__(self, forks, folder):
        self._program, self._folder = forks.program(__name__), folder
        self._groups = {}
        self._count = 0

    def run(self, workers, function, *arguments, deadline_s=DEADLINE_S):
        """Call a function on each of so many ranks; return what each returned, by rank.

        A refusal (InvalidRequest, InvalidInput) is returned like a result. Any other error fails
        the test, and so does a rank that does not answer; the group then makes place for another.
        """
        if workers not in self._groups:
            self._groups[workers] = self._start(workers)
        started, folder, pipes = self._groups[workers]
        self._count += 1
        write(folder / f"case-{self._count}", (self._count, function, arguments))
        for pipe in pipes:
            os.write(pipe, b"%d\n" % self._count)
        answers = [folder / f"answer-{self._count}-{rank}" for rank in range(workers)]
        results, deadline_s = {}, time.monotonic() + deadline_s
        while len(results) < workers and time.monotonic() < deadline_s:
            for rank, answer in enumerate(answers):
                if rank not in results and answer.exists():
                    results[rank] = pickle.loads(answer.read_bytes())
                    if isinstance(results[rank], (Exception, str)):
                        deadline_s = min(deadline_s, time.monotonic() + GRACE_S)
            time.sleep(0.002)
        failed = [result for result in results.values() if isinstance(result, str)]
        if failed or len(results) < workers:
            self._end(workers)
            silent = [rank for rank in range(workers) if rank not in results]
            raise AssertionError(
                "\n".join([f"ranks {silent} did not answer", *map(str, results.values())])
            )
        return [results[rank] for rank in range(workers)]

    def _start(self, workers):
        folder = self._folder / f"{workers}-{self._count}"
        folder.mkdir()
        paths = [folder / f"cases-{rank}" for rank in range(workers)]
        for path in paths:
            os.mkfifo(path)
        # For reading too: to open a pipe for writing alone waits for its reader.
        pipes = [os.open(path, os.O_RDWR) for path in paths]
        return self._program.start(folder, [folder], workers=workers), folder, pipes

    def _end(self, workers):
        started, _, pipes = self._groups.pop(workers)
        started.kill(range(workers), signal.SIGKILL)
        started.exits()
        for pipe in pipes:
            os.close(pipe)

    def close(self):
        """End all ranks."""
        for workers in list(self._groups):
            self._end(workers)


def write(path, value):
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(pickle.dumps(value))
    partial.rename(path)


def main(arguments):
    """Be one rank: answer each case whose number comes through its pipe, until killed, or left behind by a test."""
    torch.set_num_threads(1)
    folder = Path(arguments[0])
    with (folder / f"cases-{sessions.environment.inherited()['RANK']}").open() as numbers:
        for number in numbers:
            answer(folder, *pickle.loads((folder / f"case-{int(number)}").read_bytes()))


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

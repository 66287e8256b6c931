"""A loop that returns on one rank while others train is an error on that rank, within seconds."""

import os
import re
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import IterableDataset, TensorDataset

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.launch.endings import EndedEarly, Endings
from raysm.features.training.cluster.loop import session as sessions

DEADLINE_S = 60.0


def rows(count):
    return TensorDataset(torch.ones(count, 3), torch.ones(count, 1))


def prepared():
    model = nn.Linear(3, 1)
    training.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=functional.mse_loss)


def until_the_end(loop):
    """Run a loop as a worker of a DataParallel does; return how it ended, the lines, and the first end."""
    lines = []
    with Endings(sessions.current(), lines.append) as endings:
        try:
            loop()
            endings.finish()
        except EndedEarly as error:
            return "early", str(error), endings.early()
        except RuntimeError:
            return "lost", "", endings.early()
        return "well", "", endings.early()


def break_after(steps):
    def loop():
        prepared()
        for number, batch in enumerate(training.batches(rows(16), batch_size=4)):
            if training.rank() == 0 and number == steps:
                break
            training.step(batch)

    return until_the_end(loop)


class Rows(IterableDataset):
    def __iter__(self):
        for _ in range(8):
            yield torch.ones(3), torch.ones(1)


def break_out_of_a_stream():
    def loop():
        # As with GPUs, where it is not the group that everything else uses.
        sessions.current().cpu_group = dist.new_group(backend="gloo")
        prepared()
        for number, batch in enumerate(training.batches(Rows(), batch_size=4, sharded=True)):
            training.step(batch)
            # Before it asks for the next batch, for which all ranks count their rows.
            if training.rank() == 0 and number == 0:
                break

    return until_the_end(loop)


def skip_the_evaluation():
    def loop():
        prepared()
        for batch in training.batches(rows(16), batch_size=4):
            training.step(batch)
        if training.rank() == 0:
            training.evaluate(rows(4), batch_size=4)

    return until_the_end(loop)


def leave_plain_torch():
    def loop():
        for _ in range(4 - training.rank()):
            dist.all_reduce(torch.ones(1))

    return until_the_end(loop)


def work_alone():
    def loop():
        prepared()
        for batch in training.batches(rows(16), batch_size=4):
            training.step(batch)
        if training.rank() == 1:
            time.sleep(3.0)  # longer than the watcher's interval

    return until_the_end(loop)


def leave_plain_ddp():
    def loop():
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
        for _ in range(4 - training.rank()):
            model(torch.ones(2, 3)).sum().backward()

    return until_the_end(loop)


CASES = {
    "breaks": lambda: break_after(2),
    "breaks out of a stream": break_out_of_a_stream,
    "evaluates": skip_the_evaluation,
    "plain": leave_plain_torch,
    "plain ddp": leave_plain_ddp,
    "works": work_alone,
}


def main(arguments):
    """Be one rank: print how it ended, and end, so that the others notice."""
    sessions.current()

    def run():
        print(f"rank {training.rank()} ended:", *CASES[arguments[0]](), flush=True)
        os._exit(0)

    # As Ray Train does it.
    running = threading.Thread(target=run)
    running.start()
    running.join()


@pytest.fixture
def ends(forks, tmp_path):
    """Return what runs a case on two ranks and returns how each ended."""

    def run(case):
        log = forks.program(__name__).run(tmp_path, [case], workers=2)
        return [re.search(rf"^rank {rank} ended: (.*)$", log, re.MULTILINE)[1] for rank in range(2)]

    return run


def test_a_rank_that_breaks_out_of_the_loop_is_named_with_its_steps(ends):
    first, second = ends("breaks")
    assert "early its loop ended after 2 steps" in first
    assert "while rank 1 on node-0 began number 3" in first
    assert second.startswith("lost")


def test_a_rank_that_breaks_out_of_a_sharded_stream_is_named(ends):
    first, second = ends("breaks out of a stream")
    assert "early its loop ended after 1 steps" in first
    assert "rank 1 on node-0 has waited in all_gather" in first
    assert second.startswith("lost")


def test_a_rank_that_leaves_out_an_evaluation_is_named(ends):
    first, second = ends("evaluates")
    assert first.startswith("lost")
    assert "after 4 steps" in second
    assert "rank 0 on node-0 began number 5" in second


@pytest.mark.parametrize(("case", "waits_in"), [("plain", "all_reduce"), ("plain ddp", "")])
def test_a_rank_that_leaves_a_loop_in_plain_torch_is_named(ends, case, waits_in):
    first, second = ends(case)
    assert first.startswith("lost")
    assert second.startswith("early")
    assert f"while rank 0 on node-0 has waited in {waits_in}" in second


def test_a_rank_that_works_on_by_itself_after_the_last_step_is_waited_for(ends):
    assert [end.split()[0] for end in ends("works")] == ["well", "well"]


def one_row_more(batch_size):
    prepared()
    count = 8 + training.rank()
    for batch in training.batches(rows(count), batch_size=batch_size):
        training.step(batch)


@pytest.mark.parametrize("batch_size", [4, 16])
def test_data_sets_of_different_lengths_are_refused_at_the_first_step_on_every_rank(
    ranks, batch_size
):
    refusals = ranks.run(2, one_row_more, batch_size, deadline_s=DEADLINE_S)
    assert all(isinstance(refusal, InvalidRequest) for refusal in refusals)
    assert "samples is 8 on rank 0 and 9 on rank 1" in str(refusals[0])


def one_row_more_after_an_evaluation():
    prepared()
    training.evaluate(rows(4), batch_size=2)
    for batch in training.batches(rows(8 + training.rank()), batch_size=4):
        training.step(batch)


def test_they_are_refused_after_an_evaluation_before_the_first_step_too(ranks):
    refusals = ranks.run(2, one_row_more_after_an_evaluation, deadline_s=DEADLINE_S)
    assert all(isinstance(refusal, InvalidRequest) for refusal in refusals)

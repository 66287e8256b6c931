"""The loss of a step is a number that nothing waits for until it is read."""

import contextlib
import functools
import io
import json
import math
import pickle
import sys
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from raysm import training
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.step_loss import StepLoss
from raysm.training import Parallel

STEPS = 20

WAITS = {
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__float__",
    "__bool__",
    "__int__",
    "__index__",
    "__format__",
    "nonzero",
}
"""Methods of a tensor that on a GPU wait for all that is queued."""


class CountedReads(TorchFunctionMode):
    """Counts the calls that would wait for a GPU if the tensors were there.

    Reads of a loss that has arrived are none: on a GPU it is a copy in the memory of the host. The
    whole numbers that the hosts exchange are on the CPU in any case.
    """

    def __init__(self):
        super().__init__()
        self.count = 0
        self.is_in_loss = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.is_in_loss = sys._getframe(1).f_code is StepLoss.__float__.__code__
        waits = getattr(function, "__name__", "") in WAITS and not self.is_in_loss
        self.count += waits and args[0].is_floating_point()
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self.is_in_loss = False


class CountedKernels(TorchDispatchMode):
    """Counts the reads of one value that torch's own code makes."""

    def __init__(self, reads):
        super().__init__()
        self.count = 0
        self._reads = reads

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default and not self._reads.is_in_loss:
            self.count += args[0].is_floating_point()
        return function(*args, **(kwargs or {}))


def count_waits(parallel, read_every, **options):
    """Train, read the loss of every so manieth step; return the waits, and the losses afterwards."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training.prepare(model, optimizer, parallel, loss=functional.cross_entropy, **options)
    batches = [(torch.randn(6, 4), torch.arange(6) % 2) for _ in range(STEPS + 2)]
    # The first step compares data, and the loss with that of its halves.
    for batch in batches[:2]:
        training.step(batch)
    losses = []
    spans = []
    sessions.current().timer = lambda kind: spans.append(kind) or contextlib.nullcontext()
    with CountedReads() as reads, CountedKernels(reads) as kernels:
        for number, batch in enumerate(batches[2:], 1):
            losses.append(training.step(batch))
            if read_every and number % read_every == 0:
                float(losses[-1])
    return reads.count + kernels.count, spans.count("wait"), [float(loss) for loss in losses]


@pytest.mark.parametrize(
    ("parallel", "options"),
    [
        (Parallel(), {}),
        (Parallel(), {"accumulate": 2, "max_norm": 0.1}),
        (Parallel(shard=2), {"max_norm": 0.1}),
    ],
    ids=["ddp", "ddp, in pieces and clipped", "sharded and clipped"],
)
def test_steps_wait_for_the_device_only_where_the_loop_reads_the_loss(ranks, parallel, options):
    unread = ranks.run(2, functools.partial(count_waits, **options), parallel, 0)
    read = ranks.run(2, functools.partial(count_waits, **options), parallel, 5)
    assert [waits[:2] for waits in unread] == [(0, 0)] * 2
    assert all(reads == 0 and waits <= STEPS // 5 for reads, waits, _ in read)
    # Of different rows, and yet one mean.
    assert unread[0][2] == unread[1][2] == read[0][2]


class Unarrived:
    has_arrived = False

    def __float__(self):
        raise AssertionError("it was read")


def test_a_step_leaves_losses_that_have_not_arrived_to_a_later_one():
    session = sessions.begin()
    try:
        session.losses.append((1, Unarrived(), torch.tensor(1.0)))
        session.begin_exchange()()
        assert len(session.losses) == 1
        with pytest.raises(AssertionError, match="it was read"):
            session.look_at_losses()
    finally:
        sessions.end()


def lose(bad_step, dtype):
    """Train on rows of which rank 1's are not finite in one step; return the lines about it, and the rank found."""
    model = nn.Linear(3, 2, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=functional.cross_entropy)
    session = sessions.current()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for step in range(1, 6):
            rows = torch.ones(2, 3, dtype=dtype)
            if step == bad_step and session.rank == 1:
                rows[0, 0] = math.nan
            training.step((rows, torch.tensor([0, 1])))
        session.look_at_losses()
    return [
        line for line in printed.getvalue().splitlines() if "nan" in line
    ], session.diverged_rank


@pytest.mark.parametrize(
    ("bad_step", "dtype"), [(2, torch.float32), (5, torch.float32), (2, torch.float64)]
)
def test_a_loss_that_is_not_finite_is_named_once_with_the_step_that_had_it(ranks, bad_step, dtype):
    # The weights are NaN from then on, and so are all later losses.
    line = f"step {bad_step}: loss nan"
    assert ranks.run(2, lose, bad_step, dtype) == [([line], 1), ([], 1)]


class Stops(nn.Linear):
    """Is told to stop in its second step, on rank 1 alone."""

    steps = 0

    def forward(self, rows):
        self.steps += 1
        session = sessions.current()
        session.stop_asked |= session.rank == 1 and self.steps == 2
        return super().forward(rows)


def steps_before_stop():
    model = Stops(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=functional.cross_entropy)
    session = sessions.current()
    while not session.stop_agreed:
        training.step((torch.ones(2, 3), torch.tensor([0, 1])))
    return session.position.steps


def test_a_stop_that_is_asked_for_in_a_step_ends_the_training_after_this_step_on_all_ranks(ranks):
    assert ranks.run(2, steps_before_stop) == [2, 2]


class FailedSum(dist.Work):
    def is_completed(self):
        return True

    def wait(self, timeout=None):
        raise RuntimeError("a rank is gone")


def test_a_sum_that_failed_is_not_read_as_a_loss():
    loss = StepLoss(torch.tensor(0.75), FailedSum(), sessions.current().span)
    with pytest.raises(RuntimeError, match="a rank is gone"):
        float(loss)


def test_a_loss_that_was_read_keeps_no_tensor():
    message = torch.tensor(0.75)
    kept = weakref.ref(message)
    loss = StepLoss(message, None, sessions.current().span)
    del message
    assert float(loss) == 0.75
    assert kept() is None
    assert float(loss) == 0.75


def loss_of(value):
    return StepLoss(torch.tensor(value, dtype=torch.float64), None, sessions.current().span)


def test_it_computes_compares_and_prints_as_a_float_does():
    loss = loss_of(0.75)
    assert (loss + 1, 1 + loss, loss - 1, 1 - loss) == (1.75, 1.75, -0.25, 0.25)
    assert (loss * 2, 3 / loss, loss / 3, loss // 0.5, loss % 0.5) == (1.5, 4.0, 0.25, 1.0, 0.25)
    assert (loss**2, 4**loss, -loss, +loss, abs(loss)) == (0.5625, 4**0.75, -0.75, 0.75, 0.75)
    assert loss == 0.75
    assert loss == loss_of(0.75)
    assert loss != loss_of(1.0)
    assert 0.5 < loss <= loss_of(0.75)
    assert min(loss, loss_of(0.5)) == 0.5
    assert sum([loss, loss_of(0.25)]) == 1.0
    assert (f"{loss:.1f}", str(loss), repr(loss), f"{loss}") == ("0.8", "0.75", "0.75", "0.75")
    assert (round(loss, 1), round(loss), math.floor(loss), math.ceil(loss)) == (0.8, 1, 0, 1)
    assert {loss: 1}[0.75] == 1
    assert math.isfinite(loss)
    assert [loss] == pytest.approx([0.75 + 1e-9])


def test_a_checkpoint_of_torch_has_it_as_a_float(tmp_path):
    torch.save({"loss": loss_of(0.75)}, tmp_path / "last.pt")
    loss = torch.load(tmp_path / "last.pt")["loss"]
    assert (type(loss), loss) == (float, 0.75)


def test_numpy_takes_it_as_a_number():
    losses = [loss_of(0.75), loss_of(math.nan)]
    assert np.isnan(losses).tolist() == [False, True]
    assert np.isnan(losses[1])
    assert np.array(losses[0], np.float32).dtype == np.float32
    assert np.mean([loss_of(0.75), loss_of(0.25)]) == 0.5
    assert int(loss_of(1.75)) == 1


def test_it_is_pickled_as_a_float_and_converted_for_json():
    loss = loss_of(0.75)
    assert type(pickle.loads(pickle.dumps(loss))) is float
    assert json.dumps({"loss": float(loss)}) == '{"loss": 0.75}'

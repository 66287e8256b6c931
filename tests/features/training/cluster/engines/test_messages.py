"""How many messages a step sends, and that fewer of them change nothing."""

import functools
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from raysm import training
from raysm.training import Parallel

PIECES = 4
STEPS = 3


class CountedMessages(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "c10d":
            self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def make():
    torch.manual_seed(0)
    # The model and its four blocks are the five units of FSDP.
    blocks = (nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4))
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(*blocks), nn.Linear(4, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def count_messages(parallel, accumulate):
    """Return the messages of the last step by kind, and the losses of all steps."""
    model, optimizer = make()
    options = {"accumulate": accumulate, "blocks": "1", "max_norm": 0.1}
    training.prepare(model, optimizer, parallel, loss=functional.cross_entropy, **options)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(16 * STEPS, 4, generator=generator)
    data = torch.utils.data.TensorDataset(rows, (rows.sum(1) > 0).long())
    losses = []
    for batch in training.batches(data, batch_size=16):
        with CountedMessages() as messages:
            losses.append(training.step(batch))
    return messages.counts, [float(loss) for loss in losses]


@functools.cache
def losses_of_one_process():
    model, optimizer = make()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(16 * STEPS, 4, generator=generator)
    order = torch.utils.data.TensorDataset(rows, (rows.sum(1) > 0).long())
    losses = []
    for inputs, target in training.batches(order, batch_size=16):
        loss = functional.cross_entropy(model(inputs), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


REDUCED = {
    "replicas": (Parallel(), {}),
    "shards": (Parallel(shard=2), {"_reduce_scatter_base_": 5 * (PIECES - 1)}),
    "shards, gradients kept": (Parallel(shard=2, keep_gradients=True), {}),
}
"""By layout: the messages that pieces add to a step, beside those that gather parameters again."""


@pytest.mark.parametrize("name", REDUCED)
def test_pieces_add_no_messages_of_gradients_but_where_shards_save_their_memory(ranks, name):
    parallel, added = REDUCED[name]
    whole = ranks.run(2, count_messages, parallel, 1)
    in_pieces = ranks.run(2, count_messages, parallel, PIECES)
    for (messages, _), (messages_in_pieces, losses) in zip(whole, in_pieces, strict=True):
        more = messages_in_pieces - messages
        gathered = more.pop("_allgather_base_", 0)
        assert dict(more) == added
        assert bool(gathered) == (parallel.shard > 1)
        assert losses == pytest.approx(losses_of_one_process(), abs=1e-5)


def test_replicas_of_shards_add_up_the_gradients_of_all_pieces_once(ranks):
    parallel = Parallel(data=2, shard=2)
    whole = ranks.run(4, count_messages, parallel, 1)
    in_pieces = ranks.run(4, count_messages, parallel, PIECES)
    for (messages, _), (messages_in_pieces, losses) in zip(whole, in_pieces, strict=True):
        assert messages_in_pieces["allreduce_"] == messages["allreduce_"]
        assert losses == pytest.approx(losses_of_one_process(), abs=1e-5)

import multiprocessing
import os
import random
import resource
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, Subset, TensorDataset

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.permutation import MAX_PERMUTED, epoch_rows
from raysm.features.training.cluster.loop.position import DataOrder
from raysm.features.training.cluster.loop.random_state import seed_of
from raysm.features.training.cluster.loop.sampler import batches, slices


@pytest.fixture
def session():
    return sessions.begin()


class Drawing(Dataset):
    """Samples that are what their code draws at random."""

    def __len__(self):
        return 10

    def __getitem__(self, row):
        return torch.tensor([row, torch.rand(()).item(), random.random()])


class Endless(Dataset):
    """Samples without an end, and so without a length."""

    def __getitem__(self, row):
        return torch.tensor([row])


def rows(samples=10):
    return TensorDataset(torch.arange(samples), torch.arange(samples) * 2)


def order_of(samples, batch_size=4, **fields):
    return DataOrder(
        **{"samples": samples, "batch_size": batch_size, "shuffle": True, "seed": 0} | fields
    )


def cut(order, ranks, **fields):
    fields = {"epoch": 0, "offset": 0, "drop_last": False} | fields
    computed = epoch_rows(order, fields["epoch"])
    return [
        list(slices(order, computed, data_rank=rank, data_ranks=ranks, **fields))
        for rank in range(ranks)
    ]


def rows_of_epoch(order, epoch):
    return epoch_rows(order, epoch)(0, order.samples).tolist()


@pytest.mark.parametrize("keyed", [False, True])
def test_the_order_follows_from_seed_and_epoch_alone(keyed):
    one = rows_of_epoch(order_of(100, seed=1, keyed=keyed), 3)
    torch.rand(7)
    assert one == rows_of_epoch(order_of(100, seed=1, keyed=keyed), 3)
    assert sorted(one) == list(range(100))
    assert all(
        one != rows_of_epoch(order_of(100, seed=seed, keyed=keyed), epoch)
        for epoch, seed in [(4, 1), (3, 2), (1, 3)]
    )


@given(samples=st.integers(1, 3000), seed=st.integers(0, 2**31), begin=st.integers(0, 3000))
def test_keyed_order_has_each_row_once_and_any_part_of_it_alone(samples, seed, begin):
    order = order_of(samples, seed=seed, keyed=True)
    whole = rows_of_epoch(order, 0)
    assert sorted(whole) == list(range(samples))
    begin = min(begin, samples - 1)
    assert epoch_rows(order, 0)(begin, samples).tolist() == whole[begin:]


def test_keyed_orders_put_rows_and_their_neighbours_anywhere():
    # Positions of a row over many epochs, in eight classes; and how often neighbours stay such.
    counts = torch.zeros(8)
    adjacent = 0
    for epoch in range(4000):
        placed = rows_of_epoch(order_of(64, keyed=True), epoch)
        counts[placed.index(17) // 8] += 1
        adjacent += abs(placed.index(17) - placed.index(18)) == 1
    # 24.3 is the 0.1 % point of chi-square with 7 degrees of freedom; the seeds are fixed.
    assert float(((counts - 500) ** 2 / 500).sum()) < 24.3
    # Two of 64 rows are neighbours with probability 2 / 64: 125 times, with a deviation of 11.
    assert 80 < adjacent < 170


class Numbers(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, row):
        return torch.tensor([row])


@pytest.mark.parametrize("shuffle", [True, False])
def test_data_set_of_a_billion_rows_opens_in_constant_memory(session, shuffle):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reading = batches(Numbers(10**9), batch_size=1000, shuffle=shuffle)
    read = torch.cat([next(reading) for _ in range(100)]).flatten()
    reading.close()
    # A list of the rows would take 8 GB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert len(set(read.tolist())) == 100_000
    assert (read.max() > 9e8) == shuffle
    assert read.min() < 1e8


@pytest.mark.parametrize("shuffle", [True, False])
def test_data_set_of_a_billion_rows_resumes_in_the_middle_without_what_is_before(session, shuffle):
    dataset = Numbers(10**9)
    order = order_of(10**9, shuffle=shuffle, keyed=shuffle)
    middle = 500_000_000
    session.position.offset = middle
    begun_s = time.process_time()
    reading = batches(dataset, batch_size=4, shuffle=shuffle)
    batch = next(reading)
    # Half a billion rows take minutes at least.
    assert time.process_time() - begun_s < 10
    reading.close()
    assert batch.flatten().tolist() == epoch_rows(order, 0)(middle, middle + 4).tolist()


def test_order_of_smaller_data_sets_is_a_permutation_as_before(session):
    generator = torch.Generator().manual_seed(seed_of(0, 0))
    [batch] = batches(Numbers(9), batch_size=9)
    assert batch.flatten().tolist() == torch.randperm(9, generator=generator).tolist()
    assert MAX_PERMUTED > 10_000_000


def test_an_epoch_of_a_permuted_data_set_takes_four_bytes_a_row():
    order = order_of(1_000_000)
    rows = epoch_rows(order, 0)(0, order.samples)
    assert rows.untyped_storage().nbytes() == 4 * order.samples
    generator = torch.Generator().manual_seed(seed_of(0, 0))
    assert torch.equal(rows.long(), torch.randperm(order.samples, generator=generator))


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_the_slices_of_all_ranks_are_the_batches_of_one(ranks):
    order = order_of(26, batch_size=8)
    whole = [part.rows for part in cut(order, 1)[0]]
    parts = cut(order, ranks)
    for number, batch in enumerate(whole):
        together = [row for rank in parts if rank[number].share for row in rank[number].rows]
        assert tuple(together) == batch
        assert sum(rank[number].share for rank in parts) == pytest.approx(1.0)
        assert all(rank[number].rows for rank in parts)
        assert len({len(rank[number].rows) for rank in parts}) <= 2


@pytest.mark.parametrize("rows_of_batch", [1, 3, 5, 8])
def test_rank_0_always_has_rows_of_its_own_and_those_without_compute_one_that_counts_nothing(
    rows_of_batch,
):
    # Its running averages of batch norms are those that checkpoints keep and DDP gives to all.
    parts = [rank[0] for rank in cut(order_of(rows_of_batch, batch_size=8, shuffle=False), 4)]
    shares = [part.share for part in parts]
    assert shares[0] > 0
    assert shares == sorted(shares, reverse=True)
    assert all(part.rows == (0,) for part in parts if not part.share)


def test_batches_bring_every_row_once_an_epoch_and_tell_the_session_what_comes(session):
    seen, places = [], []
    for inputs, doubled in batches(rows(), batch_size=4, epochs=2):
        assert doubled.tolist() == [2 * row for row in inputs.tolist()]
        seen += inputs.tolist()
        current = session.position.current
        places.append((current.epoch, current.begin, current.end, session.share))
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]
    assert places == [
        (epoch, *ends, 1.0) for epoch in range(2) for ends in ((0, 4), (4, 8), (8, 10))
    ]
    assert (session.position.current, session.share) == (None, None)


def several(dataset):
    """The same data set as others hold it: parts of parts, and read by slices."""
    return {
        "subset": Subset(dataset, range(10)),
        "nested": Subset(Subset(dataset, range(10)), list(range(10))),
        "by slices": BySlices(dataset),
        "subset by slices": Subset(BySlices(dataset), range(10)),
    }


class BySlices(Dataset):
    """A data set that reads many rows at once, and counts how often."""

    def __init__(self, dataset):
        self.dataset, self.reads = dataset, 0

    def __len__(self):
        return len(self.dataset)

    def __getitems__(self, rows):
        self.reads += 1
        return [self.dataset[row] for row in rows]


@pytest.mark.parametrize("held", list(several(Drawing())))
@pytest.mark.parametrize("loader_workers", [0, 1])
def test_what_samples_draw_does_not_depend_on_slices_however_the_data_set_is_held(
    session, held, loader_workers
):
    def read(dataset, batch_size):
        session.position.epoch, session.position.offset, session.position.order = 0, 0, None
        return torch.cat(
            list(
                batches(
                    dataset, batch_size=batch_size, epochs=1, seed=6, loader_workers=loader_workers
                )
            )
        ).tolist()

    plain = read(Drawing(), 4)
    assert read(several(Drawing())[held], 4) == plain
    assert read(several(Drawing())[held], 3) == plain


def test_in_the_middle_of_an_epoch_another_batch_size_takes_the_rows_that_are_left(session):
    whole = [row for batch in batches(rows(), batch_size=4, epochs=1) for row in batch[0].tolist()]
    session.position.epoch, session.position.offset = 0, 4
    left = [batch[0].tolist() for batch in batches(rows(), batch_size=5, epochs=1)]
    assert left == [whole[4:9], whole[9:]]


@pytest.mark.parametrize(
    ("samples", "drop_last", "sizes"),
    [
        (8, True, [4, 4]),
        (10, True, [4, 4]),
        (10, False, [4, 4, 2]),
        (4, True, [4]),
        (3, False, [3]),
    ],
)
def test_drop_last_leaves_out_a_last_batch_that_is_smaller_and_no_other(
    session, samples, drop_last, sizes
):
    read = list(batches(rows(samples), batch_size=4, drop_last=drop_last))
    assert [len(batch[0]) for batch in read] == sizes


@pytest.mark.parametrize(
    ("dataset", "given", "named"),
    [
        (iter([1]), {"batch_size": 1}, r"no len\(\)"),
        ({1, 2}, {"batch_size": 1}, r"no len\(\)"),
        (Endless(), {"batch_size": 1}, r"no len\(\)"),
        (rows(), {"batch_size": 0}, "batch_size=0"),
        (rows(), {"batch_size": 1, "loader_workers": -1}, "loader_workers=-1"),
        (rows(0), {"batch_size": 1}, " 0 samples .* 1"),
        (rows(), {"batch_size": 11, "drop_last": True}, "10 samples .* 11"),
    ],
)
def test_what_makes_no_batches_is_refused_before_the_first(session, dataset, given, named):
    with pytest.raises(InvalidRequest, match=named):
        batches(dataset, **given)


class Processes(Dataset):
    """Samples that say which process read them."""

    def __len__(self):
        return 8

    def __getitem__(self, row):
        return torch.tensor([row, os.getpid()])


def test_persistent_workers_read_all_passes_and_end_with_the_session(session):
    processes = Processes()

    def read(dataset, **options):
        return torch.cat(
            list(
                batches(dataset, batch_size=2, loader_workers=2, persistent_workers=True, **options)
            )
        )

    passes = [read(processes, epochs=2), read(processes)]
    readers = {pid for each in passes for pid in each[:, 1].tolist()}
    assert len(readers) == 2
    assert os.getpid() not in readers
    orders = [part[:, 0].tolist() for part in (*passes[0].split(8), passes[1])]
    # No step learns from them, so the second call is at epoch 0 again.
    assert orders == [rows_of_epoch(order_of(8, batch_size=2), epoch) for epoch in (0, 1, 0)]
    # Those of a data set that takes the place of another end.
    assert not readers & set(read(Processes())[:, 1].tolist())
    assert len(multiprocessing.active_children()) == 2
    sessions.end()
    assert not multiprocessing.active_children()


def test_persistent_workers_begin_a_pass_that_was_left_or_is_inside_of_another_anew(session):
    processes = Processes()
    options = {
        "batch_size": 2,
        "loader_workers": 2,
        "persistent_workers": True,
        "shuffle": False,
    }
    left = batches(processes, **options)
    assert next(left)[:, 0].tolist() == [0, 1]
    left.close()
    outer = batches(processes, **options)
    for number, batch in enumerate(outer):
        inner = torch.cat(list(batches(processes, **options)))
        assert batch[:, 0].tolist() == [2 * number, 2 * number + 1]
        assert inner[:, 0].tolist() == list(range(8))
    sessions.end()
    assert not multiprocessing.active_children()


def test_persistent_workers_go_on_in_the_middle_of_an_epoch(session):
    options = {"batch_size": 2, "loader_workers": 2, "persistent_workers": True}
    session.position.epoch = 3
    session.position.offset = 4
    read = torch.cat(list(batches(Processes(), epochs=5, **options)))[:, 0].tolist()
    third, fourth = (rows_of_epoch(order_of(8, batch_size=2), epoch) for epoch in (3, 4))
    assert read == third[4:] + fourth
    sessions.end()


def test_workers_that_persist_without_any_are_refused(session):
    with pytest.raises(InvalidRequest, match="loader_workers"):
        batches(rows(), batch_size=2, persistent_workers=True)

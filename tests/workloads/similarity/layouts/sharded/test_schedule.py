import itertools
import random
from collections import Counter

import pytest

from raysm.workloads.similarity.layouts.sharded.index import Run, Shard
from raysm.workloads.similarity.layouts.sharded.schedule import Share, cut, deal, traffic
from tests.support.shards import shares


def loads(given):
    """Pairs of rows that each instance compares, for each slot."""
    work = Counter()
    for host, transfers in deal(given).items():
        for transfer in transfers:
            for own in transfer.partners:
                work[host] += transfer.chunk.rows * own.rows / (2 if own is transfer.chunk else 1)
    return [work[share.host] / share.slots for share in given if share.chunks]


def random_shares():
    rng = random.Random(5)
    for count in (1, 2, 3, 4, 7, 12):
        yield [rng.randrange(0, 9000) for _ in range(count)], [rng.choice([1, 2, 8]) for _ in range(count)]


SHARES = [*random_shares(), ([9000] * 3, None), ([9000] * 4, None), ([0, 500, 0], None)]


@pytest.mark.parametrize(("rows", "slots"), SHARES)
def test_every_two_parcels_meet_once_where_one_of_them_lies(rows, slots):
    given = shares(rows, slots)
    met = Counter()
    for host, transfers in deal(given).items():
        for transfer in transfers:
            for own in transfer.partners:
                assert own.host == host
                met[frozenset([transfer.chunk, own])] += 1
    chunks = [chunk for share in given for chunk in share.chunks]
    everyone = [frozenset(two) for two in itertools.combinations_with_replacement(chunks, 2)]
    assert met == Counter(everyone)


@pytest.mark.parametrize(("rows", "slots"), SHARES)
def test_no_parcel_visits_an_instance_twice(rows, slots):
    for transfers in deal(shares(rows, slots)).values():
        coming = [transfer.chunk for transfer in transfers if not transfer.at_home]
        assert len(coming) == len(set(coming))


@pytest.mark.parametrize("count", [3, 5, 9])
def test_an_odd_ring_sends_and_receives_the_same_everywhere(count):
    found = traffic(deal(shares([9000] * count)))
    expected = {f"algo-{number + 1}": (count - 1) // 2 * 9000 for number in range(count)}
    assert found.sent == expected
    assert found.received == expected


@pytest.mark.parametrize("count", [2, 4, 8])
def test_of_an_even_ring_opposites_exchange_three_quarters(count):
    found = traffic(deal(shares([8000] * count, chunk_rows=1000)))
    total = count * 8000
    assert sum(found.sent.values()) == total * (count - 2) / 2 + 0.75 * total


@pytest.mark.parametrize(
    ("rows", "slots", "most"),
    [
        ([9000] * 3, None, 1.0),
        ([9000] * 8, None, 1.03),
        ([5000, 9000, 9000, 7000], None, 1.1),
        ([9000] * 5, [4, 2, 2, 2, 2], 1.1),
    ],
)
def test_the_busiest_instance_is_hardly_busier_than_the_mean(rows, slots, most):
    given = shares(rows, slots)
    mean = sum(rows) ** 2 / 2 / sum(share.slots for share in given)
    assert max(loads(given)) <= most * mean


def test_own_rows_meet_themselves_before_anybody_comes():
    for transfers in deal(shares([3000, 5000, 4000])).values():
        kinds = [(not transfer.at_home, transfer.partners != (transfer.chunk,)) for transfer in transfers]
        assert kinds == sorted(kinds)


def test_a_share_is_cut_evenly():
    shard = Shard(host="algo-1", runs=(Run(0, 0, 10_000),), bytes=0)
    assert [chunk.rows for chunk in cut(shard, 4000)] == [3333, 3333, 3334]
    assert cut(Shard(host="algo-2", runs=(), bytes=0), 4000) == ()


def test_a_parcel_is_named_by_its_rows_alone():
    one, other = (Shard(host=host, runs=(Run(5, 0, 4), Run(20, 4, 6)), bytes=0) for host in ("algo-1", "algo-2"))
    (first,), (second,) = (cut(shard, 10) for shard in (one, other))
    assert str(first) == str(second)
    assert first.numbers().tolist() == [5, 6, 7, 8, 20, 21, 22, 23, 24, 25]


def test_rows_without_a_cpu_are_refused():
    with pytest.raises(ValueError, match="algo-1 has rows, but no CPU"):
        deal([Share(host="algo-1", slots=0, chunks=shares([300])[0].chunks)])

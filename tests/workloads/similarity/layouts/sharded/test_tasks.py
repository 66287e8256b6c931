import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.arithmetic.score import prepare
from raysm.workloads.similarity.arithmetic.topk_accumulator import TopKAccumulator, zero_row_keys
from raysm.workloads.similarity.layouts.sharded import tasks
from raysm.workloads.similarity.layouts.sharded.index import join, report
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import block_pairs
from raysm.workloads.similarity.layouts.sharded.resident_rows import ShardContext, portion
from raysm.workloads.similarity.layouts.sharded.schedule import Share, cut, deal
from raysm.workloads.similarity.tasks.context import Place, Source
from tests.support import reference
from tests.support.similarity import kinds_of_rows

KINDS = kinds_of_rows(rows=90)


class Spread:
    """Rows on three instances, file by file in turn, and every pair held in this process."""

    def __init__(self, rows, folder, max_tile_rows=20):
        self.sources = {}
        for number in (1, 2, 3):
            place = folder / f"algo-{number}"
            place.mkdir()
            self.sources[f"algo-{number}"] = Source(
                channel="matrix", place=Place(place, folder / "scratch", f"algo-{number}"), sharded=True
            )
        for at, some in enumerate(np.array_split(rows, 8)):
            np.save(self.sources[f"algo-{at % 3 + 1}"].place.channel / f"part-{at + 5}.npy", some)
        self.index = join([report(source) for source in self.sources.values()], list(self.sources), "matrix")
        self.starts, line = {}, []
        for shard in self.index.shards:
            self.starts[shard.host] = sum(len(some) for some in line)
            line.append(self.sources[shard.host].open().read(0, shard.rows))
        known = prepare(np.concatenate(line).astype(self.index.dtype))
        self.norms = known.norms
        self.contexts = {
            host: ShardContext(
                source=source,
                rows=self.index.rows,
                columns=self.index.columns,
                norms=known.norms,
                exponents=known.exponents if known.exponents.any() else known.exponents[:0],
                integral=known.integral,
                starts=self.starts,
                dtype=self.index.dtype,
            )
            for host, source in self.sources.items()
        }
        self.shares = [
            Share(host=shard.host, slots=1, chunks=cut(shard, slots=1, max_tile_rows=max_tile_rows, exact=True))
            for shard in self.index.shards
        ]

    def held(self, function, tell=lambda pair: None):
        for host, transfers in deal(self.shares).items():
            for pair in (one for transfer in transfers for one in block_pairs(transfer)):
                object.__setattr__(pair, "told", tell(pair))
                visitor = pair.visitor
                rows = visitor and portion(self.sources[visitor.host], visitor, self.index.dtype)
                yield pair, tasks.compare(function, self.contexts[host], pair, rows or None).arrays

    def line(self, chunk):
        return tasks.in_line(self.contexts["algo-1"], chunk)

    def in_order(self, values):
        """Bring values[N] of the rows in line into the order of the matrix."""
        ordered = np.empty_like(values)
        for share in self.shares:
            for chunk in share.chunks:
                cut = self.line(chunk)
                ordered[chunk.numbers()] = values[cut.start : cut.stop]
        return ordered


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_spread_rows_are_those_of_float64(kind, tmp_path):
    rows, k = KINDS[kind], 4
    spread = Spread(rows, tmp_path)
    standing = TopKAccumulator(tmp_path / "standing", len(rows), k)

    def tell(pair):
        left, right = spread.line(pair.left), spread.line(pair.right)
        lower_bounds = standing.lower_bounds
        return lower_bounds[left.start : left.stop].copy(), lower_bounds[right.start : right.stop].copy()

    for pair, arrays in spread.held(lambda context, one: tasks.topk_arrays(k, context, one), tell):
        standing.merge(spread.line(pair.left), arrays["counts"], arrays["keys"])
        if "column_counts" in arrays:
            standing.merge(spread.line(pair.right), arrays["column_counts"], arrays["column_keys"])
    keys = spread.in_order(standing.read(0, len(rows)))
    standing.close()
    zero = np.flatnonzero(spread.in_order(spread.norms) == 0)
    keys[zero] = zero_row_keys(zero, k, same=True)
    scores, indices = decode(keys)
    expected = reference.neighbors(rows, k)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


@pytest.mark.parametrize("kind", ["float32", "duplicates", "zero rows"])
def test_the_pairs_of_spread_rows_are_those_of_float64(kind, tmp_path):
    rows = KINDS[kind]
    spread = Spread(rows, tmp_path)
    found = []
    for _, arrays in spread.held(lambda context, one: tasks.threshold_arrays(np.float32(0.2), context, one)):
        part = list(zip(*(arrays[name].tolist() for name in ("rows", "neighbors", "similarities")), strict=True))
        assert part == sorted(part)
        found += part
    assert sorted(found) == [(i, j, float(score)) for i, j, score in reference.pairs(rows, 0.2)]


def test_the_scores_of_spread_rows_are_those_of_float64(tmp_path):
    rows = KINDS["float64"]
    spread = Spread(rows, tmp_path)
    scores = np.zeros((len(rows), len(rows)), dtype=np.float32)
    for pair, arrays in spread.held(lambda context, one: tasks.full_arrays("float32", context, one)):
        at = np.ix_(pair.left.numbers(), pair.right.numbers())
        scores[at] = arrays["scores"]
        scores.T[at] = arrays["scores"]
    np.testing.assert_array_equal(scores, reference.score_rows(rows, range(len(rows))))


def test_rows_that_are_not_there_are_not_read(tmp_path):
    spread = Spread(KINDS["float32"], tmp_path)
    here = spread.contexts["algo-1"].open()
    with pytest.raises(ValueError, match="are not at hand"):
        here.read(here.own.stop, here.own.stop + 1)

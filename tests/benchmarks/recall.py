"""Top-k with a recall beside the exact search and beside faiss's inverted file: seconds of one core, in one process.

    python3 tests/benchmarks/recall.py --rows 1000000 --columns 128
    python3 tests/benchmarks/recall.py --real ../shared/data/packages-minilm.npy --faiss

The synthetic rows lie around random directions, 250 to each. The exact search and faiss are measured on some of the
rows, which look into all of them, and scaled: exact to the half of all pairs that a self-join computes. CPU seconds of
this thread, since a machine that is shared makes the others mean little; no cluster, no result written.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from raysm.workloads.blocks import RowBlock, row_blocks
from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.cells.building import build, comparer_of
from raysm.workloads.similarity.cells.promise import measured_recall
from raysm.workloads.similarity.cells.search import search
from raysm.workloads.similarity.engines import Best
from tests.support.cells import done_here
from tests.support.similarity import context_of, saved

STRIP = 1 << 15


def synthetic(rows, columns):
    rng = np.random.default_rng(1)
    directions = rng.standard_normal((max(1, rows // 250), columns), dtype=np.float32)
    noise = rng.uniform(0.2, 1.0, (rows, 1)).astype(np.float32)
    noisy = noise * rng.standard_normal((rows, columns), dtype=np.float32)
    return directions[rng.permutation(rows) % len(directions)] + noisy


def seconds(call):
    begin = time.thread_time()
    value = call()
    return value, time.thread_time() - begin


def approximate(context, k, recall):
    """Return (the index, the recall of rows that chose nothing, seconds to build, seconds to search)."""
    index, built_s = seconds(lambda: build(context, k, recall, 2, done_here(context)))
    rows = context.matrix.rows
    keys = np.empty((rows, k), dtype=np.uint64)

    def look():
        for start in range(0, rows, STRIP):
            places = RowBlock(start, min(start + STRIP, rows))
            keys[index.matrix.numbers[places.start : places.stop]] = search(context, index, k, places)

    _, searched_s = seconds(look)
    scores = decode(keys[index.sample])[0]
    return index, measured_recall((scores >= index.truth[:, None]).mean(axis=1)), built_s, searched_s


def exact(context, k, some):
    """Return the seconds in which some rows look into all of them, scaled to half of all pairs."""
    compare, rows = comparer_of(context), context.matrix.rows

    def look():
        left = compare.ready(context.matrix.tile(0, some))
        best = Best.empty(left.tile.norms, k)
        for block in row_blocks(rows, compare.step):
            right = compare.ready(context.matrix.tile(block.start, block.stop))
            compare.engine.topk(left, right, best, None, same=True)

    return seconds(look)[1] * rows / some / 2, compare.engine.name


def inverted_file(matrix, index, k, recall, some):
    """Return (seconds of all rows, probes, recall) of faiss's own inverted file with as many cells, on one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    cells = len(index.centroids)
    peer = faiss.IndexIVFFlat(faiss.IndexFlatIP(unit.shape[1]), unit.shape[1], cells, faiss.METRIC_INNER_PRODUCT)

    def fill():
        peer.train(unit[np.random.default_rng(0).permutation(len(unit))[: 64 * cells]])
        peer.add(unit)

    _, filled_s = seconds(fill)
    asked = index.sample[:some]
    while True:
        (scores, _), searched_s = seconds(lambda: peer.search(unit[asked], k + 1))
        # By the score, within what float32 sums may be wrong by; the first one is the row itself.
        reached = float((scores[:, 1:] >= index.truth[:some, None] - 1e-5).mean())
        if reached >= recall or peer.nprobe >= cells:
            return filled_s + searched_s * len(unit) / len(asked), peer.nprobe, reached
        peer.nprobe = min(cells, max(peer.nprobe + 1, peer.nprobe * 5 // 4))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--real", type=Path, help="a matrix, .npy, instead of synthetic rows")
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--some", type=int, default=4096, help="rows that the exact search is measured on")
    parser.add_argument("--faiss", action="store_true", help="measure faiss's inverted file, too")
    arguments = parser.parse_args()
    if arguments.real is None:
        matrix = synthetic(arguments.rows, arguments.columns)
    else:
        matrix = np.load(arguments.real).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        context = context_of(saved(matrix, Path(folder)))
        index, reached, built_s, searched_s = approximate(context, arguments.top_k, arguments.recall)
        exact_s, engine = exact(context, arguments.top_k, min(arguments.some, len(matrix)))
    print(f"{len(matrix)} x {matrix.shape[1]}, top-{arguments.top_k}, recall {arguments.recall}, {engine}, one core")
    print(f"{index.probes} of {len(index.centroids)} cells, {index.share:.2%} of all pairs; recall {reached}")
    print(f"approximate {built_s + searched_s:8.1f} s (cells {built_s:.1f}, search {searched_s:.1f})")
    print(f"exact       {exact_s:8.1f} s: {exact_s / (built_s + searched_s):.1f} x")
    if arguments.faiss:
        peer_s, probes, share = inverted_file(matrix, index, arguments.top_k, arguments.recall, 1000)
        times = peer_s / (built_s + searched_s)
        print(f"faiss IVF   {peer_s:8.1f} s: {times:.1f} x, {probes} probes, recall {share:.4f} of 1000 rows")


if __name__ == "__main__":
    main()

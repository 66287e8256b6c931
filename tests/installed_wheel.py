"""Check an installed wheel: its kernels load, and give what NumPy gives.

cibuildwheel runs this on each machine that it makes a wheel for. It imports nothing of this tree.
"""

import sys

import numpy as np

from raysm.features.similarity.cluster.arithmetic.score import Tile, prepare
from raysm.features.similarity.cluster.engines.compiled import CompiledEngine
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from raysm.features.similarity.cluster.kernels.build import (
    FLOATS,
    INTEGERS,
    Unavailable,
    all_recipes,
    find,
    this_machine,
)

COLUMNS = 96
K = 5


def best_of(engine, tile):
    frame = Frame.plain(COLUMNS)
    side = engine.prepare(tile, frame)
    best = Best.empty(tile.norms, K)
    engine.topk(side, side, best, best, same=True)
    return best.keys


def main():
    lacking = [recipe for recipe in all_recipes(this_machine()) if find(recipe) is None]
    if lacking:
        sys.exit(f"the wheel lacks kernels: {lacking}")
    rows = np.random.default_rng(0).standard_normal((200, COLUMNS)).astype(np.float32)
    tile = Tile(rows=rows, norms=prepare(rows).norms, start=0)
    expected = best_of(PlainEngine(), tile)
    checked = []
    for bits, instructions in (*INTEGERS, *FLOATS):
        try:
            engine = CompiledEngine(bits, instructions, COLUMNS, mixed=False)
        except Unavailable as error:
            print(f"{bits} bits, {instructions.name}: not here: {error}")
            continue
        np.testing.assert_array_equal(best_of(engine, tile), expected)
        checked.append(engine.name)
    if not checked:
        sys.exit("no kernel runs on this machine")
    print(f"equal to NumPy: {', '.join(checked)}")


if __name__ == "__main__":
    main()

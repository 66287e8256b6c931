"""What this processor multiplies at most with the instructions of an engine: the bound of every similarity."""

import ctypes
import functools
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from raysm.features.similarity.cluster.engines.compiled import kind_name
from raysm.features.similarity.cluster.kernels.build import DENSE, FLOATS, INTEGERS, Recipe, library

LOOP = Path(__file__).with_name("limit.c")
STEPS = 1_000_000
ROUNDS = 9
"""The quickest counts: what else runs on the machine can only slow it down."""

KINDS = {
    kind_name(bits, instructions): (bits, instructions)
    for bits, instructions in (*INTEGERS, *FLOATS)
}


def kind_of(engine):
    """Return the bits and instructions of a compiled engine by its name in the manifest; None of any other."""
    return KINDS.get(engine.removesuffix(" mixed"))


@functools.cache
def multiply_and_add(bits, instructions):
    """Return the loop, compiled as the kernels are."""
    recipe = Recipe(LOOP, instructions, (f"-DKIND={bits}", f"-I{DENSE.parent}"))
    # A folder of its own: the recipe's digest does not know the headers, which lie in another one.
    with tempfile.TemporaryDirectory() as folder:
        loop = library(recipe, folder=Path(folder)).multiply_and_add
    loop.argtypes, loop.restype = [ctypes.c_int64], ctypes.c_int64
    return loop


def products_per_s(bits, instructions, threads):
    """Return how many products of two elements are made and added a second, by so many threads at once."""
    loop, together, rates = multiply_and_add(bits, instructions), threading.Barrier(threads), []

    def go(_):
        together.wait()
        return loop(STEPS)

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            products = sum(STEPS * per_step for per_step in pool.map(go, range(threads)))
            rates.append(products / (time.perf_counter() - begin))
    return max(rates)

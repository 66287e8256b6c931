"""Where the time of a similarity's tasks goes: ``similarity.py --profile``.

``watch`` runs in each Ray worker before its tasks. It lets the kernels be compiled with the counters of
``kernels/profile.h``, measures the Python functions around them, and after each task writes the sums
into a file of this process. Seconds of a function do not include those of the functions that it
calls, so the parts are disjoint, and their sum is the time of all tasks.
"""

import ctypes
import functools
import json
import os
import time
from collections import Counter
from pathlib import Path

FOLDER = "RAYSM_PROFILE_FOLDER"
HOOK = "tests.benchmarks.where_time_goes.watch"

KERNEL_PARTS = (
    "outside",
    "rest of the kernels",
    "packing",
    "seeds",
    "products",
    "filter",
    "limits",
    "closer look",
    "candidates",
    "scores",
)
"""The parts of ``enum part`` in profile.h."""

PREPARING = "norms and sums of the rows"
READING = "reading rows"
PACKING = "packing"
CALLING = "calls of the kernels"
TASK = "rest of the tasks: hints, keys"
CLOCK_S = 0.05
TOLERANCE = 0.05


class Watch:
    """The parts of this process so far, in seconds."""

    def __init__(self, path):
        self._path = path
        self.seconds = Counter()
        self._inner = [0.0]
        self._libraries = []

    def measuring(self, part, function):
        """Return the function, whose time without that of measured functions within it counts for ``part``."""

        @functools.wraps(function)
        def measured(*args, **named):
            self._inner.append(0.0)
            begin = time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                took = time.perf_counter() - begin
                self.seconds[part] += took - self._inner.pop()
                self._inner[-1] += took

        return measured

    def with_library(self, function):
        @functools.wraps(function)
        def loaded(*args, **named):
            library = function(*args, **named)
            if library not in self._libraries:
                self._libraries.append(library)
            return library

        return loaded

    def writing(self, function):
        """Return the function that runs a task; after each task, the sums are written."""

        @functools.wraps(function)
        def written(*args, **named):
            begin = time.perf_counter()
            part = function(*args, **named)
            self.seconds["whole"] += time.perf_counter() - begin
            self._path.with_suffix(".part").write_text(json.dumps(self.read()))
            self._path.with_suffix(".part").replace(self._path)
            return part

        return written

    def read(self):
        """Return the seconds of each part, and the number of ``products``."""
        found = Counter(self.seconds)
        for library in self._libraries:
            kernels, products = read_kernels(library)
            # Time in the kernels is a part of the functions that called them.
            found[PACKING] -= kernels["packing"]
            found[CALLING] -= sum(kernels.values()) - kernels["packing"]
            found.update(kernels)
            found["products made"] += products
        return found


def read_kernels(library):
    """Return the seconds of each part of a library compiled with -DPROFILE, and its products."""
    numbers = (ctypes.c_uint64 * (2 + len(KERNEL_PARTS)))()
    library.profiled(numbers)
    products, ticks = numbers[1], numbers[3:]  # without the time outside
    per_s = ticks_per_s(library)
    return {
        part: each / per_s for part, each in zip(KERNEL_PARTS[1:], ticks, strict=True)
    }, products


_rates = {}


def ticks_per_s(library):
    """Return the rate of the processor's clock, which is the same all the time."""
    if library not in _rates:
        numbers = (ctypes.c_uint64 * (2 + len(KERNEL_PARTS)))()
        library.profiled(numbers)
        begin, first = time.perf_counter(), numbers[0]
        while time.perf_counter() < begin + CLOCK_S:
            pass
        library.profiled(numbers)
        _rates[library] = (numbers[0] - first) / (time.perf_counter() - begin)
    return _rates[library]


def watch():
    """Measure the tasks of this process from now on; return the Watch."""
    from raysm.features.similarity.cluster import tasks
    from raysm.features.similarity.cluster.engines import compiled
    from raysm.features.similarity.cluster.kernels import build

    of_process = Watch(Path(os.environ[FOLDER]) / f"{os.getpid()}.json")
    measuring = of_process.measuring
    build.OPTIONS = (*build.OPTIONS, "-DPROFILE")
    compiled._library = of_process.with_library(compiled._library)
    engine = compiled.CompiledEngine
    engine.prepare = measuring(PACKING, engine.prepare)
    for name in ("topk", "pairs", "scores"):
        setattr(engine, name, measuring(CALLING, getattr(engine, name)))
    tasks.Operand.tile = measuring(READING, tasks.Operand.tile)
    tasks.run_task = of_process.writing(measuring(TASK, tasks.run_task))
    tasks.run_preparation = of_process.writing(measuring(PREPARING, tasks.run_preparation))
    return of_process


def total(folder):
    """Return the sums of all processes so far."""
    found = Counter()
    for path in folder.glob("*.json"):
        found.update(json.loads(path.read_text()))
    return found


def tell(spent, rate_per_core, task_seconds, plain_seconds):
    """Print a table of the parts; return whether the kernels' parts are their calls' time within 5 %.

    The other parts sum to ``whole`` however they are measured.

    ``rate_per_core``: products a second of a loop of the engine's instructions, or None.
    """
    whole, products = spent.pop("whole"), spent.pop("products made", 0)
    parts = dict(spent)
    if rate_per_core and products:
        at_limit = products / rate_per_core
        parts["products: at the loop's rate"] = at_limit
        parts["products: loads, stalls, beginnings"] = parts.pop("products") - at_limit
    print(f"\n{'core-seconds of the tasks':38}{'s':>8}{'share':>8}")
    for part, seconds in sorted(parts.items(), key=lambda each: -each[1]):
        print(f"{part:38}{seconds:8.3f}{seconds / whole:8.1%}")
    print(f"{'sum of the parts':38}{sum(parts.values()):8.3f}{sum(parts.values()) / whole:8.1%}")
    print(f"{'measured as a whole':38}{whole:8.3f}")
    print(f"with counters / without, in turn: {task_seconds / plain_seconds:.3f}")
    return abs(parts.get(CALLING, 0.0)) <= TOLERANCE * whole

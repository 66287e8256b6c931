"""A session beside ipyparallel, dask.distributed and Ray's Jobs API: calls, a map, and the first result, in one run.

    python3 -m pip install -e '.[bench]'
    chrt -r 1 python3 tests/benchmarks/session.py [--rounds 5] [--against ipyparallel dask jobs]

Each contender has two workers on this machine and a client in a process of its own; they are asked
in turn. What is printed are medians over the rounds, and raysm's over the best of the others'.
``--profile FILE`` writes what raysm's client does in its calls, for pstats.
"""

import argparse
import contextlib
import cProfile
import importlib.metadata
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKERS = 2
CALLS, BURST, ITEMS = 200, 1000, 10_000
JOBS = 3  # calls of Ray's Jobs API: each is a process, and takes seconds
START_S = 300
VALUE_BYTES = 200_000_000


def nothing():
    pass


def one_more(number):
    return number + 1


def made(size):
    import numpy

    return numpy.ones(size, dtype=numpy.uint8)


def size_of(array):
    return array.nbytes


def same(array):
    return array


def times_of_a_value(run):
    array, figures = made(VALUE_BYTES), {}
    for name, function, argument in (
        ("out", size_of, array),
        ("back", made, VALUE_BYTES),
        ("both ways", same, array),
    ):
        began_s = time.perf_counter()
        value = run(function, argument)
        figures[f"200 MB {name}, s"] = time.perf_counter() - began_s
        assert getattr(value, "nbytes", value) == VALUE_BYTES
        del value
    return figures


class Session:
    """A session of raysm in the embedded SageMaker, whose one instance has both cores."""

    def start(self):
        import raysm

        self.session = raysm.Session(
            cluster=raysm.Cluster(count=1), name=f"bench-{os.getpid()}"
        ).start()

    def call(self):
        self.session.run(nothing)

    def run(self, function, *args):
        return self.session.run(function, *args)

    def burst(self, count):
        for call in [self.session.submit(nothing) for _ in range(count)]:
            call.result()

    def map(self, items):
        return list(self.session.map(one_more, items))

    def interrupt(self):
        cell = self.session.cell("import time; time.sleep(600)")
        while cell.status.state != "running":
            time.sleep(0.01)
        began_s = time.perf_counter()
        self.session.interrupt()
        cell.exception()
        return time.perf_counter() - began_s

    def close(self):
        self.session.close()


class Jobs(Session):
    """Ray's Jobs API, of the same kind of cluster: a program for each call."""

    def start(self):
        super().start()
        from ray.job_submission import JobSubmissionClient

        from raysm.errors import InvalidRequest

        self.client = None
        while self.client is None:
            # Ray's dashboard is there some seconds after the session.
            with contextlib.suppress(InvalidRequest):
                self.client = JobSubmissionClient(f"raysm://{self.session.name}")
            time.sleep(0.1)

    def call(self):
        self.await_end(self.submit())

    def burst(self, count):
        for job in [self.submit() for _ in range(count)]:
            self.await_end(job)

    def submit(self):
        return self.client.submit_job(entrypoint=f"{sys.executable} -c pass")

    def await_end(self, job):
        while not self.client.get_job_status(job).is_terminal():
            time.sleep(0.01)


class IPyParallel:
    """A controller with two engines; calls by the view that chooses the engine."""

    def start(self):
        import ipyparallel

        # Its own engines must not be those of whoever else works here.
        self.folder = tempfile.TemporaryDirectory(prefix="bench-ipp")
        os.environ["IPYTHONDIR"] = self.folder.name
        self.cluster = ipyparallel.Cluster(n=WORKERS, log_level=50)
        self.view = self.cluster.start_and_connect_sync(activate=False).load_balanced_view()

    def call(self):
        self.view.apply_sync(nothing)

    def run(self, function, *args):
        return self.view.apply_sync(function, *args)

    def burst(self, count):
        for call in [self.view.apply_async(nothing) for _ in range(count)]:
            call.get()

    def map(self, items):
        return list(self.view.map_sync(one_more, items))

    def close(self):
        self.cluster.stop_cluster_sync()
        self.folder.cleanup()


class Dask:
    """A scheduler with two workers of one thread each."""

    def start(self):
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        self.client = Client(self.cluster)

    def call(self):
        # Not pure: it would be asked once, and answered from memory ever after.
        self.client.submit(nothing, pure=False).result()

    def run(self, function, *args):
        return self.client.submit(function, *args, pure=False).result()

    def burst(self, count):
        self.client.gather([self.client.submit(nothing, pure=False) for _ in range(count)])

    def map(self, items):
        return self.client.gather(self.client.map(one_more, items, pure=False))

    def close(self):
        self.client.close()
        self.cluster.close()


CONTENDERS = {"raysm": Session, "ipyparallel": IPyParallel, "dask": Dask, "jobs": Jobs}
PACKAGES = {"ipyparallel": "ipyparallel", "dask": "distributed", "jobs": "ray"}


def seconds(function, *args):
    began_s = time.perf_counter()
    function(*args)
    return time.perf_counter() - began_s


def latencies(contender, count):
    return [seconds(contender.call) for _ in range(count)]


def first(contender):
    contender.start()
    contender.call()


def check_map(contender):
    assert contender.map(range(ITEMS)) == list(range(1, ITEMS + 1))


def asked(contender):
    """Return one round's figures."""
    is_slow = isinstance(contender, Jobs)
    taken_s = sorted(latencies(contender, JOBS if is_slow else CALLS))
    figures = {
        "no-op call, median ms": 1000 * statistics.median(taken_s),
        "no-op call, p95 ms": 1000 * taken_s[int(0.95 * len(taken_s))],
    }
    count = JOBS if is_slow else BURST
    figures["calls a second"] = count / seconds(contender.burst, count)
    if not is_slow:
        figures[f"map of {ITEMS} items, s"] = seconds(check_map, contender)
        if hasattr(contender, "interrupt"):
            figures["interrupt of a cell, s"] = contender.interrupt()
    return figures


def profiled(contender, path):
    with cProfile.Profile() as profile:
        latencies(contender, CALLS)
    profile.dump_stats(path)


def _child(pipe, name):
    sys.path.insert(0, str(ROOT))
    contender = CONTENDERS[name]()
    # What they print of themselves would stand between the figures.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        pipe.send({"first result, s": seconds(first, contender)})
        try:
            latencies(contender, 1 if name == "jobs" else 20)
            pipe.send("warm")
            while (word := pipe.recv()) != "end":
                match word:
                    case "go":
                        pipe.send(asked(contender))
                    case "values":
                        pipe.send(times_of_a_value(contender.run))
                    case path:
                        pipe.send(profiled(contender, path))
        finally:
            closed_s = seconds(contender.close)
            with contextlib.suppress(OSError):
                pipe.send({"close, s": closed_s})


class Process:
    """One contender in a process of its own."""

    def __init__(self, name):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_child, args=(there, name))
        self.process.start()
        there.close()

    def hear(self):
        assert self.pipe.poll(START_S), f"{self.name} says nothing"
        return self.pipe.recv()

    def ask(self, word):
        self.pipe.send(word)
        return self.hear()

    def end(self):
        """End it; return what that took, if it still answers."""
        closed = {}
        with contextlib.suppress(OSError, EOFError):
            self.pipe.send("end")
            closed = self.pipe.recv() if self.pipe.poll(60) else {}
        self.process.join(60)
        if self.process.is_alive():
            self.process.kill()
        return closed


def show(figures):
    """Print a table: figures of all, and raysm's over the best of the others."""
    names = list(figures)
    print("".join([f"{'':28}", *(f"{name:>14}" for name in names), f"{'ratio':>10}"]))
    for figure in figures["raysm"]:
        values = {name: of[figure] for name, of in figures.items() if figure in of}
        others = [value for name, value in values.items() if name != "raysm"]
        best = (max if figure.endswith("a second") else min)(others, default=None)
        cells = [f"{values[name]:14.2f}" if name in values else f"{'-':>14}" for name in names]
        ratio = f"{values['raysm'] / best:10.2f}" if best else f"{'-':>10}"
        print("".join([f"{figure:28}", *cells, ratio]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--against", nargs="*", default=["ipyparallel", "dask", "jobs"], choices=sorted(CONTENDERS)
    )
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--values", action="store_true", help="instead of calls, arrays of 200 MB")
    chosen = parser.parse_args()
    processes, figures, closed = [], {}, {}
    try:
        # One after the other: two that start at once would be timed by each other.
        for name in ["raysm", *chosen.against]:
            processes.append(Process(name))
            figures[name] = processes[-1].hear()
            assert processes[-1].hear() == "warm"
        rounds = {name: [] for name in figures}
        for _ in range(chosen.rounds):
            for process in processes:
                rounds[process.name].append(process.ask("values" if chosen.values else "go"))
        if chosen.profile:
            processes[0].ask(str(chosen.profile))
    finally:
        for process in processes:
            closed[process.name] = process.end()
    for name, each in rounds.items():
        figures[name] |= closed[name] | {
            figure: statistics.median(one[figure] for one in each) for figure in each[0]
        }
    versions = [f"{name} {importlib.metadata.version(PACKAGES[name])}" for name in chosen.against]
    print(", ".join(versions), f"; {chosen.rounds} rounds", sep="")
    show(figures)


if __name__ == "__main__":
    main()

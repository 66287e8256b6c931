"""The all-rows similarity beside its peers: in turn, in one run, warm, medians; with what float64 says.

    pip install 'raysm[bench]'
    python3 tests/benchmarks/similarity.py 50k-768 50k-128 --runs 3 --against faiss
    python3 tests/benchmarks/similarity.py 50k-768 --profile
    python3 tests/benchmarks/similarity.py --list

For raysm the seconds are the computing time of the tasks (of the full matrix and of gathering:
until the file is there), for the peers the whole call. GFLOP/s counts 2 * N * N * d for everybody;
the share of the processor's limit counts each unordered pair once. Memory is what the processes
held beside mapped files, over what they held before. ``disk`` writes as many bytes as the result
has, as any program would. OpenBLAS's kernels are the fastest that the processor's flags allow, and
are printed. A peer whose library reaches less than 40 % of this machine's float32 products is
refused.
Agreement: of some rows, how many have float64's neighbors, index for index. With ``--profile``, a
table shows where the time of the tasks goes, in a run with counters beside one without.
"""

import argparse
import os
import statistics
import sys
import tempfile
import timeit
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from tests.benchmarks import where_time_goes
from tests.benchmarks.blas import why_unfair
from tests.benchmarks.contenders import PROFILED, THREADS, Contender, Job, loaded
from tests.benchmarks.processor_limit import kind_of, products_per_s

REAL = Path(__file__).parents[3] / "shared" / "data" / "packages-minilm.npy"

SMALL_ROWS = 2000


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table of goals."""

    make: object
    """Makes the matrix in a folder and returns its path."""
    goals: dict = field(default_factory=dict)
    """How many times a contender's seconds are to be those of ours."""
    beside: tuple = ()
    ours: str = "raysm"
    kind: str = "topk"
    threshold: float = 0.0
    memory: dict = field(default_factory=dict)
    """How many times the memory of a contender ours may be at most."""
    share: float = 0.0
    """Of the processor's limit, that ours is to reach at least."""
    other: object = None
    """Makes another matrix: contenders with a ' *' in their name compute it."""


def gaussian(rows, columns, seed=0):
    def make(folder):
        return kept(
            folder, np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
        )

    return make


def clustered(rows, columns, size=250):
    def make(folder):
        rng = np.random.default_rng(1)
        centres = rng.standard_normal((rows // size, columns), dtype=np.float32)
        noise = rng.uniform(0.2, 1.0, (rows, 1)).astype(np.float32)
        return kept(
            folder,
            centres[rng.permutation(rows) % len(centres)]
            + noise * rng.standard_normal((rows, columns), dtype=np.float32),
        )

    return make


def tight(rows, columns, count):
    """Make clusters whose rows are within a thousandth of each other."""

    def make(folder):
        rng = np.random.default_rng(5)
        centres = rng.standard_normal((count, columns), dtype=np.float32)
        noise = rng.standard_normal((rows, columns), dtype=np.float32)
        return kept(folder, centres[rng.integers(0, count, rows)] + np.float32(1e-3) * noise)

    return make


def nearly_alike(rows, columns):
    def make(folder):
        noise = np.random.default_rng(2).standard_normal((rows, columns), dtype=np.float32)
        return kept(folder, np.float32(1) + np.float32(0.01) * noise)

    return make


def real(folder):
    return kept(folder, np.load(REAL)) if REAL.exists() else None


def sparse(rows, columns, density):
    def make(folder):
        import scipy.sparse

        rng = np.random.default_rng(3)
        matrix = scipy.sparse.random(
            rows, columns, density=density, format="csr", random_state=rng, dtype=np.float32
        )
        matrix.data = rng.standard_normal(matrix.nnz, dtype=np.float32)
        for name, part in (("matrix", matrix), ("small", matrix[:SMALL_ROWS])):
            scipy.sparse.save_npz(folder / f"{name}.npz", part, compressed=False)
        return folder / "matrix.npz"

    return make


def keys(rows, k):
    """Make what the parts of top-k hold: scores and neighbors of each row, the best first."""

    def make(folder):
        from raysm.features.similarity.cluster.arithmetic.keys import encode

        rng, step = np.random.default_rng(4), 1 << 20
        found = np.lib.format.open_memmap(folder / "matrix.npy", "w+", np.uint64, (rows, k))
        for start in range(0, rows, step):
            shape = min(step, rows - start), k
            scores = np.sort(rng.random(shape, dtype=np.float32), axis=1)[:, ::-1].copy()
            found[start : start + step] = encode(scores, rng.integers(0, rows, shape))
        np.save(folder / "small.npy", found[:SMALL_ROWS])
        return folder / "matrix.npy"

    return make


def kept(folder, matrix):
    np.save(folder / "matrix.npy", matrix)
    np.save(folder / "small.npy", matrix[:SMALL_ROWS])
    return folder / "matrix.npy"


OTHERS = ("torch-int8", "torch-bfloat16", "numkong-int8")
"""Peers whose products have fewer bits, so that some neighbors are not those of float64."""

LARGE = {"faiss": 1.5}
FORCED = "raysm float32"

CASES = {
    "50k-768": Case(
        make=gaussian(50_000, 768),
        goals={"faiss": 3.2, "sklearn": 8, "ray": 5},
        memory={"faiss": 1.2},
        share=0.5,
        beside=OTHERS,
    ),
    "50k-128": Case(make=gaussian(50_000, 128), goals={"faiss": 2.2}, beside=("sklearn", *OTHERS)),
    "20k-768": Case(make=gaussian(20_000, 768), goals={"faiss": 2.2}, beside=("sklearn", *OTHERS)),
    "20k-128": Case(
        make=gaussian(20_000, 128), goals={"faiss": 1.3}, beside=("sklearn", "usearch", *OTHERS)
    ),
    "clustered": Case(make=clustered(50_000, 768), goals={"faiss": 2.6}),
    "300k-128": Case(make=gaussian(300_000, 128), share=0.5),
    "real": Case(make=real, goals={"faiss": 12}, share=0.5),
    "float32-50k-768": Case(make=gaussian(50_000, 768), goals=LARGE, ours=FORCED),
    "float32-50k-128": Case(make=gaussian(50_000, 128), goals=LARGE, ours=FORCED),
    "float32-20k-768": Case(make=gaussian(20_000, 768), ours=FORCED, beside=("faiss",)),
    "float32-20k-128": Case(make=gaussian(20_000, 128), ours=FORCED, beside=("faiss",)),
    "float32-clustered": Case(make=clustered(50_000, 768), goals=LARGE, ours=FORCED),
    "alike": Case(
        make=nearly_alike(10_000, 768),
        goals={"raysm *": 1 / 3},
        other=gaussian(10_000, 768),
        beside=("faiss",),
    ),
    **{
        f"{before}tight-{count}{behind}": Case(
            make=tight(50_000, 768, count),
            goals={f"{ours} *": 1 / 3},
            other=gaussian(50_000, 768),
            ours=ours,
            kind=kind,
            threshold=threshold,
        )
        for count in (2, 50)
        for before, behind, ours, kind, threshold in (
            ("", "", "raysm", "topk", 0.0),
            ("float32-", "", FORCED, "topk", 0.0),
            # A few pairs of each row; of gaussian rows, none.
            ("", "-threshold", "raysm", "threshold", 0.99999916),
        )
    },
    "threshold": Case(
        make=gaussian(50_000, 768), kind="threshold", threshold=0.11388, goals={"numpy": 3}
    ),
    "full": Case(make=gaussian(50_000, 128), kind="full", goals={"disk": 0.85}),
    "gather": Case(make=keys(10**7, 10), kind="gather", ours="gathering", goals={"disk": 1 / 2.5}),
    "sparse": Case(make=sparse(100_000, 50_000, 0.001), goals={"sparse_dot_topn": 1, "scipy": 1}),
    # Only shows that everything runs.
    "tiny": Case(make=gaussian(4_000, 64), goals={"faiss": 0.0}, beside=("ray", "sklearn")),
}


def ceilings():
    """Measure the products that this machine can do, in GFLOP/s on the cores that the contenders have."""
    import torch

    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.standard_normal((2048, 1024), dtype=np.float32))
    small = (rows * 20).clamp(-127, 127).to(torch.int8)
    halves = rows.to(torch.bfloat16)
    products = {
        "float32": lambda: torch.mm(rows, rows.T),
        "bfloat16": lambda: torch.mm(halves, halves.T),
        "int8": lambda: torch._int_mm(small, small.T.contiguous()),
    }
    found = {}
    for name, product in products.items():
        product()
        # The quickest counts: what else runs on the machine can only slow it down. A product
        # without instructions takes a second, and once will do.
        timer, took = timeit.Timer(product), []
        while len(took) < 5 and sum(took) < 0.5:
            took.append(timer.timeit(1))
        found[name] = 2 * 2048 * 2048 * 1024 / min(took) / 1e9
    return found


def expected(matrix, job):
    """Return float64's neighbors of some rows, by the definition."""
    from tests.support.reference import neighbors

    return neighbors(np.asarray(matrix), job.k, list(job.some))[0]


def expected_sparse(matrix, job):
    """Do the same where a dense matrix would be too large: score, by dense rows, who comes near to being among them."""
    norms = np.maximum(
        np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel(), 1e-30
    )
    found = []
    for row in job.some:
        shared = (
            (matrix[[row]].astype(np.float64) @ matrix.T.astype(np.float64)).toarray()[0]
            / norms
            / norms[row]
        )
        near = np.argsort(-shared, kind="stable")[: 3 * job.k]
        # Whoever shares no column has the score 0: of those, the lowest numbers count.
        those = np.unique(np.concatenate([near, np.arange(3 * job.k), [row]]))
        mine = int(np.searchsorted(those, row))
        best = expected(matrix[those].toarray(), Job(**{**vars(job), "some": (mine,)}))[0]
        found.append(those[best])
    return np.array(found)


def measured(name, case, arguments, folder, machine_gflops):
    path = case.make(folder)
    if path is None:
        print(f"\n{name}: skipped: {REAL} is not there; --real names the embeddings")
        return True
    (folder / "other").mkdir()
    other = case.other and case.other(folder / "other")
    matrix = loaded(path)
    some = tuple(np.linspace(0, matrix.shape[0] - 1, arguments.sample).astype(int).tolist())
    small = path.with_stem("small")
    job = Job(
        kind=case.kind, path=path, small=small, other=other, threshold=case.threshold, some=some
    )
    against = arguments.against
    peers = [
        peer
        for peer in (*case.goals, *case.beside)
        if not against or peer in against or peer.endswith(" *")
    ]
    if arguments.profile:
        return profiled(name, case, job, arguments.runs, matrix.shape)
    contenders = [Contender(one, job) for one in dict.fromkeys([case.ours, *peers])]
    try:
        if not are_fair(name, contenders, machine_gflops):
            return False
        for _ in range(arguments.runs):
            for contender in contenders:
                contender.go()
    finally:
        for contender in contenders:
            contender.end()
    return report(name, case, contenders, matrix.shape, agreement(matrix, job, contenders))


def profiled(name, case, job, runs, shape):
    """Print where the time of the tasks goes; return whether all of it is accounted for."""
    contenders = [Contender("raysm", job), Contender(PROFILED, job)]
    try:
        for _ in range(runs):
            for contender in contenders:
                contender.go()
    finally:
        for contender in contenders:
            contender.end()
    plain, counted = (
        sorted(one.runs, key=lambda run: run["seconds"])[runs // 2] for one in contenders
    )
    print(f"\n{name}: {case.kind} of {shape[0]} x {shape[1]}, the median of {runs} runs")
    tell_phases("raysm", [counted])
    kinds = [kind_of(engine) for engine in counted["engines"]]
    rate = products_per_s(*kinds[0], THREADS) / THREADS if kinds and kinds[0] else None
    return where_time_goes.tell(counted["spent"], rate, counted["seconds"], plain["seconds"])


def are_fair(name, contenders, machine_gflops):
    """Print which kernels the peers use; return whether all are fast enough to be compared with."""
    fair = True
    for contender in contenders:
        for library in contender.libraries:
            print(f"{name}: {contender.name} uses {library}", flush=True)
        unfair = why_unfair(contender.name, contender.libraries, machine_gflops)
        if unfair:
            print(f"{name}: REFUSED: {unfair}")
            fair = False
    return fair


def agreement(matrix, job, contenders):
    """Return for each contender what its answer has to do with float64's."""
    if job.kind in ("full", "gather"):
        return {}
    if job.kind == "threshold":
        return {contender.name: f"{contender.runs[-1]['answer']} pairs" for contender in contenders}
    truth = expected_sparse(matrix, job) if hasattr(matrix, "tocsr") else expected(matrix, job)
    return {
        contender.name: f"{int((contender.runs[-1]['answer'] == truth).all(axis=1).sum())}/{len(truth)}"
        for contender in contenders
        if not contender.name.endswith(" *")
    }


def report(name, case, contenders, shape, agrees):
    rows, columns = shape
    seconds = {
        one.name: statistics.median(run["seconds"] for run in one.runs) for one in contenders
    }
    memory = {one.name: one.peak_bytes for one in contenders}
    ours = case.ours
    print(
        f"\n{name}: {case.kind} of {rows} x {columns}, medians of {len(contenders[0].runs)} runs in turn"
    )
    print(
        f"{'':18}{'seconds':>9}{'least':>8}{'most':>8}{'ratio':>8}{'GFLOP/s':>10}{'MB':>8}  as float64"
    )
    for one in contenders:
        took = [run["seconds"] for run in one.runs]
        speed = 2 * rows**2 * columns / seconds[one.name] / 1e9
        print(
            f"{one.name:18}{seconds[one.name]:9.2f}{min(took):8.2f}{max(took):8.2f}"
            f"{seconds[one.name] / seconds[ours]:8.2f}{speed:10.0f}{memory[one.name] / 1e6:8.0f}"
            f"  {agrees.get(one.name, '')}"
        )
    if case.kind == "gather":
        merge_s = statistics.median(run["merge_s"] for run in contenders[0].runs)
        print(f"{contenders[0].runs[-1]['bytes'] / 1e9:.3f} GB are written by each of them;")
        print(f"the merge before, beside the tasks where there are any: {merge_s:.2f} s")
    else:
        tell_phases(ours, contenders[0].runs)
    holds = tell_share(case, contenders[0], shape, seconds[ours])
    checks = []
    for peer, goal in case.goals.items():
        if peer in seconds:
            ratio = seconds[peer] / seconds[ours]
            checks.append(
                (f"{peer} / {ours}: {ratio:.2f} (goal: at least {goal:.2f})", ratio >= goal)
            )
    for peer, goal in case.memory.items():
        if peer in memory:
            ratio = memory[ours] / memory[peer]
            checks.append(
                (
                    f"memory of {ours} / {peer}: {ratio:.2f} (goal: at most {goal:.2f})",
                    ratio <= goal,
                )
            )
    for check, held in checks:
        print(check, "holds" if held else "MISSED")
    return holds and all(held for _, held in checks)


def tell_share(case, contender, shape, seconds):
    """Print what part of the processor's limit ours reached; return whether that is as it is asked for."""
    kinds = [kind_of(engine) for engine in contender.runs[-1].get("engines", ())]
    if case.kind not in ("topk", "threshold") or len(kinds) != 1 or kinds[0] is None:
        return not case.share
    rows, columns = shape
    rate, limit = rows**2 / 2 * columns / seconds, products_per_s(*kinds[0], THREADS)
    verdict = (
        f" (goal: at least {case.share:.0%}) {'holds' if rate >= case.share * limit else 'MISSED'}"
    )
    print(
        f"half of the matrix: {rate / 1e9:.0f}e9 products/s, {rate / limit:.0%} of the {limit / 1e9:.0f}e9 of a loop "
        f"of its instructions{verdict if case.share else ''}"
    )
    return rate >= case.share * limit


def tell_phases(ours, runs):
    beside = sorted((run["beside"] for run in runs), key=lambda beside: beside["whole_s"])[
        len(runs) // 2
    ]
    phases = ", ".join(f"{phase} {took:.2f}" for phase, took in beside["phases"].items())
    print(
        f"{ours} on a formed cluster: {beside['whole_s']:.2f} s ({phases}), {beside['share']:.0%} of it in computing;"
    )
    print(f"computed with {', '.join(runs[-1]['engines'])}")


def main():
    global REAL
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "cases", nargs="*", metavar="case", help="which rows of the table; --list names them"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and their goals")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--profile", action="store_true", help="show where the time of the tasks goes, and no peer"
    )
    parser.add_argument("--against", nargs="+", help="these contenders only, beside ours")
    parser.add_argument(
        "--sample", type=int, default=40, help="rows that are compared with float64"
    )
    parser.add_argument("--real", type=Path, default=REAL, help="the real embeddings, .npy")
    parser.add_argument(
        "--folder", type=Path, help="where matrices and results lie; the full matrix needs 20 GB"
    )
    arguments = parser.parse_args()
    REAL = arguments.real
    if arguments.list:
        for name, case in CASES.items():
            print(
                f"{name:20}{case.kind:10}{', '.join(f'{peer} {goal:.2f}' for peer, goal in case.goals.items())}"
            )
        return
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; --list names them")
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    limits = ceilings()
    found = ", ".join(f"{name} {speed:.0f}" for name, speed in limits.items())
    print(
        f"products of this machine, {THREADS} threads of {os.cpu_count()}, GFLOP/s: {found}",
        flush=True,
    )
    missed = []
    for name in arguments.cases or [name for name in CASES if name != "tiny"]:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            if not measured(name, CASES[name], arguments, Path(folder), limits["float32"]):
                missed.append(name)
        sys.stdout.flush()
    print(f"\nmissed: {', '.join(missed)}" if missed else "\nall goals hold")


if __name__ == "__main__":
    main()

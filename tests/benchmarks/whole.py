"""Whole jobs, from the command to the prompt, beside what a user would type instead: in turn, medians, one machine.

    python3 tests/benchmarks/whole.py [print core digits ddp ...] [--runs 5] [--against none] [--before edc27cee]

Every raysm job has two instances of this machine. ``first`` starts the embedded SageMaker too, and
``second`` finds it. ``before first`` and ``before second`` are those of another commit.
``first line`` is the time to the first output. Processor seconds are those of the command and of
all that it started. Needs Linux and the extra ``bench``; a case whose packages are missing is left
out. It imports nothing of raysm, so that ``beside.py`` can run it in another tree.
"""

import argparse
import contextlib
import importlib.util
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from beside import interpreter, unpacked
from blas import with_fastest
from start import COMMAND, Processors

SCRIPTS = {
    "print": "print('user code')",
    "core": """
import ray
ray.init(log_to_driver=False)
square = ray.remote(lambda i: i * i)
print(sum(ray.get([square.remote(i) for i in range(200)])))
""",
    "tune": """
import ray
from ray import tune
ray.init(log_to_driver=False)
found = tune.Tuner(lambda config: {"score": config["x"] ** 2}, param_space={"x": tune.grid_search([1, 2, 3, 4])}).fit()
print(found.get_best_result("score", "min").metrics["score"])
""",
    "data": """
import ray
ray.init(log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
print(ray.data.range(10_000, override_num_blocks=8).map_batches(lambda batch: {"x": batch["id"] * 2}).sum("x"))
""",
    "map": """
import raysm
with raysm.Session(cluster=raysm.Cluster(count=2)) as session:
    print(sum(session.map(lambda i: i * i, range(1000))))
""",
    "map_by_dask": """
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        print(sum(client.gather(client.map(lambda i: i * i, range(1000)))))
""",
    # Both write what raysm's result has: for each row its ten most similar others, and their
    # scores.
    "similar": """
import sys
import numpy as np
library, path, out = sys.argv[1:]
load = np.load if path.endswith(".npy") else lambda path: np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
rows = load(path)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
if library == "faiss":
    import faiss
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    scores, found = index.search(rows, 11)
else:
    scores, found = [], []
    for first in range(0, len(rows), 1024):
        block = rows[first : first + 1024] @ rows.T
        block[np.arange(len(block)), first + np.arange(len(block))] = -2
        best = np.argpartition(block, -10, axis=1)[:, -10:]
        values = np.take_along_axis(block, best, axis=1)
        order = np.argsort(-values, axis=1)
        found.append(np.take_along_axis(best, order, axis=1))
        scores.append(np.take_along_axis(values, order, axis=1))
np.savez(out, found=np.concatenate(found), scores=np.concatenate(scores))
""",
}

TORCHRUN = "{python} -m torch.distributed.run --nproc-per-node 2 examples/{script}_digits.py {data} --epochs 2"
BY_HAND = (
    "{python} -m ray.scripts.scripts start --head --num-cpus=1 --port={gcs} --dashboard-port={dashboard}"
    " --ray-client-server-port={client} --disable-usage-stats"
    " && {python} -m ray.scripts.scripts start --address=127.0.0.1:{gcs} --num-cpus=1 --disable-usage-stats"
    " && RAY_ADDRESS=127.0.0.1:{gcs} {python} {folder}/{script}.py"
)
"""Ended afterwards by a signal: ``ray stop`` would end every Ray of the machine, and takes 7 s."""


@dataclass(frozen=True, kw_only=True)
class Case:
    raysm: str
    """Words after ``raysm``, or a whole command that begins with {python}."""
    against: dict[str, str]
    """By its name, what a user would type instead, for ``sh -c``."""
    needs: tuple[str, ...] = ()


def ray_case(script, *needs):
    return Case(
        raysm=f"run {{folder}}/{script}.py --instances 2",
        against={"ray by hand": BY_HAND},
        needs=needs,
    )


def train_case(script, *needs):
    words = f"train examples/{script}_digits.py --instances 2 --input data=examples/data"
    end = "" if script == "torchrun" else " --output {out}"
    return Case(
        raysm=f"{words}{end} -- data --epochs 2",
        against={"torchrun": TORCHRUN + " --model-dir {out}"},
        needs=needs,
    )


def similarity_case(path):
    plain = {
        name: f"{{python}} {{folder}}/similar.py {name} {path} {{out}}.npz"
        for name in ("numpy", "faiss")
    }
    return Case(
        raysm=f"similarity {path} --top-k 10 --instances 2 --output {{out}}",
        against=plain,
        needs=("faiss",),
    )


CASES = {
    "print": Case(
        raysm="run {folder}/print.py --instances 2",
        against={"python": "{python} {folder}/print.py"},
    ),
    "core": ray_case("core"),
    "tune": ray_case("tune", "pandas"),
    "data": ray_case("data", "pandas"),
    "digits": similarity_case("examples/data/digits.csv.gz"),
    "20k-128": similarity_case("{folder}/rows.npy"),
    "map": Case(
        raysm="{python} {folder}/map.py",
        against={"dask": "{python} {folder}/map_by_dask.py"},
        needs=("distributed", "aiohttp"),
    ),
    "ddp": train_case("torchrun", "torch"),
    "trainer": train_case("trainer", "transformers", "accelerate"),
    "accelerate": train_case("accelerate", "accelerate"),
    "lightning": train_case("lightning", "lightning"),
}


def timed(command, tree, environment, processors):
    """Run one command in ``tree``; return its seconds, those to its first line, and its processor seconds."""
    used_s, begun_s = processors.used_s(), time.monotonic()
    # One pipe: the first line may be one on stderr that says what is being waited for.
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        first = process.stdout.readline()
        first_line_s = time.monotonic() - begun_s
        lines = [first, *process.stdout]
        status = process.wait()
        whole_s = time.monotonic() - begun_s
        if status:
            raise SystemExit(
                f"{shlex.join(command)} ended with {status}:\n{b''.join(lines).decode()}"[-4000:]
            )
    return whole_s, first_line_s, processors.used_s() - used_s


def free_ports(count):
    probes = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def end_descendants():
    left = psutil.Process().children(recursive=True)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=10)


@contextlib.contextmanager
def left_out_if_it_fails(label):
    """Go on without this run: torch aborts a script now and then as it ends, which torchrun takes for a failure."""
    try:
        yield
    except SystemExit as error:
        print(f"{label}: this run failed and is left out: {error}")


def two_jobs(case, values, out, python, tree, environment, processors):
    """Return what the first and the second job of the raysm in ``tree`` took, with a server of their own."""
    raysm = [str(python), "-c", COMMAND]
    took = []
    try:
        for number in ("first", "second"):
            words = shlex.split(
                case.raysm.format(**values, python=shlex.quote(str(python)), out=f"{out}-{number}")
            )
            command = words if words[0] == str(python) else [*raysm, *words]
            took.append(timed(command, tree, environment, processors))
    finally:
        subprocess.run(
            [*raysm, "local", "down"], cwd=tree, env=environment, capture_output=True, check=True
        )
        end_descendants()
    return took


def one_round(name, folder, processors, trees, against):
    """Return by their names what the jobs of each tree took, and what a user would type instead."""
    case, found = CASES[name], {}
    # A home of its own: Ray writes a token into it, which later clusters of this user would ask
    # for.
    environment = with_fastest(os.environ) | {"HOME": str(folder)}
    # Some shells and images set it; with it every process would compile raysm anew, which no user's
    # does.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    script = "torchrun" if name == "ddp" else name
    values = {"folder": folder, "data": "examples/data", "script": script}
    for label, (python, tree) in trees.items():
        out, home = folder / f"{name}{label}", folder / f"home{label}"
        with left_out_if_it_fails(f"{name} {label}") if label else contextlib.nullcontext():
            jobs = two_jobs(
                case, values, out, python, tree, environment | {"RAYSM_HOME": str(home)}, processors
            )
            found |= {f"{label} first".strip(): jobs[0], f"{label} second".strip(): jobs[1]}
    environment["RAY_TMPDIR"] = str(folder / "ray")
    for other, text in case.against.items() if against else ():
        gcs, dashboard, client = free_ports(3)
        out = folder / f"{name}-{other}"
        os.makedirs(out, exist_ok=True)
        python = shlex.quote(sys.executable)
        line = text.format(
            **values, python=python, gcs=gcs, dashboard=dashboard, client=client, out=out
        )
        try:
            with left_out_if_it_fails(f"{name} {other}"):
                found[other] = timed(["sh", "-c", line], None, environment, processors)
        finally:
            end_descendants()
    return found


def measured(name, processors, trees, against):
    """Run one round in a folder of its own, with the scripts and the matrix in it."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for script, text in SCRIPTS.items():
            (folder / f"{script}.py").write_text(text.lstrip())
        np.save(
            folder / "rows.npy", np.random.default_rng(0).standard_normal((20_000, 128), np.float32)
        )
        return one_round(name, folder, processors, trees, against)


def report(name, values):
    """Print a line for each command: the medians, and raysm's second job over it."""
    medians = {
        command: [statistics.median(each) for each in zip(*took, strict=True)]
        for command, took in values.items()
    }
    for command, (whole_s, line_s, processor_s) in medians.items():
        ratio = (
            ""
            if command in ("first", "second", "before first")
            else f"{medians['second'][0] / whole_s:8.2f}"
        )
        label = f"{name} {command}, s:"
        print(
            f"{label:26}{whole_s:8.2f}, first line {line_s:5.2f}, processor s {processor_s:6.2f}{ratio}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--against", choices=("all", "none"), default="all", help="what is measured beside raysm"
    )
    parser.add_argument(
        "--before", metavar="COMMIT", help="measure the jobs of its tree too, in the same turns"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    cases = {}
    for name in arguments.cases or CASES:
        if lacks := [need for need in CASES[name].needs if importlib.util.find_spec(need) is None]:
            print(f"{name}: left out, {', '.join(lacks)} is not installed")
        else:
            cases[name] = defaultdict(list)
    processors, against = Processors(), arguments.against == "all"
    with tempfile.TemporaryDirectory() as other:
        trees = {"": (sys.executable, None)}
        if arguments.before:
            tree = unpacked(arguments.before, Path(other) / "tree")
            trees["before"] = interpreter(tree, Path(other) / "python"), tree
        for number in range(arguments.runs):
            for name, values in cases.items():
                for command, took in measured(name, processors, trees, against).items():
                    values[command].append(took)
                    print(f"run {number + 1}, {name} {command}: {took[0]:.2f} s", flush=True)
    print(
        f"\nmedians of {arguments.runs} runs; last, the second job over what a user would type instead"
    )
    for name, values in cases.items():
        report(name, values)


if __name__ == "__main__":
    main()

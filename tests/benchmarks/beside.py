"""The benchmarks of this tree beside those of another commit: in turn, in one run, with the same packages; ratios.

    python3 tests/benchmarks/beside.py edc27cee [similarity lifecycle submit ...] [--rounds 5]

Each round runs every benchmark once of each tree. Printed are the medians of both and today's over
the other's; of times, above 1 is slower. The least of both stand beside, which noise can only
raise. 5 % are allowed.
"""

import argparse
import io
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = 1.05
LIMITS = {"forming / Ray itself": 0.4}
"""By name, of figures that are ratios by themselves: the most that today's may be."""

FROM_HERE = ("start", "whole")

NUMBER = r"\s*:?\s+(\d+\.\d+)"

COMMANDS = {
    "similarity": ("20k-768", "20k-128", "--runs", "3", "--against", "none"),
    "lifecycle": ("--runs", "1"),
    "submit": ("--runs", "3"),
    "training": ("--runs", "1"),
    "start": ("--runs", "1"),
    "session": ("--rounds", "2", "--against"),
    "batch": ("--images", "4000", "--runs", "1"),
    "grid": ("--rows", "20000"),
    "whole": ("core", "digits", "ddp", "--runs", "1", "--against", "none"),
}
"""By name of the benchmark: what it is run with, once a round."""

FIGURES = {
    "similarity": (r"^(raysm)" + NUMBER, r"^(raysm on a formed cluster)" + NUMBER),
    "lifecycle": (
        r"^(started -> first line)" + NUMBER,
        r"^(last line -> (?:workers|all) gone)" + NUMBER,
        r"^(forming / Ray itself)" + NUMBER,
    ),
    "submit": (
        r"^(raysm\.submit returns after)" + NUMBER,
        r"^(submit -> instances started)" + NUMBER,
        r"^(import raysm(?:; raysm\.submit)?)" + NUMBER,
    ),
    "start": (
        r"^((?:first|second|print) job, processor s)" + NUMBER,
        r"^((?:first|second|print) job, s)" + NUMBER,
    ),
    "training": (
        r"^(steps/s)" + NUMBER,
        r"^(start -> first step)" + NUMBER,
        r"^(last step -> end)" + NUMBER,
    ),
    "session": (r"^(.+, s|.+ms|calls a second)" + NUMBER,),
    "batch": (r"^(rows/s, raysm / Ray Data)" + NUMBER,),
    "grid": (r"^(CPU, s|memory, MB|store, MB)" + NUMBER,),
    "whole": (
        r"^([\w-]+ (?:first|second), s)" + NUMBER,
        r"^([\w-]+ (?:first|second)), s:.*, processor s\s+(\d+\.\d+)",
    ),
}
"""By name of the benchmark: the lines that are compared, each with its name and its first
number."""

MORE_IS_BETTER = ("steps/s", "Ray Data", "a second")

CASE = re.compile(r"^([\w-]+): \w+ of \d+ x \d+")
"""A line below which the figures of another case stand."""


def interpreter(tree, folder):
    """Return a Python that has this one's packages, and raysm from ``tree`` alone."""
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    here = "\n".join(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    # A line that begins with import is run: the tree has to come before whatever raysm is
    # installed.
    (packages / "tree.pth").write_text(f"{here}\nimport sys; sys.path.insert(0, {str(tree)!r})\n")
    python = folder / "bin" / "python"
    # A benchmark calls it by name, from the folder of the Python that runs it.
    ray = folder / "bin" / "ray"
    ray.write_text(f"#!{python}\nfrom ray.scripts.scripts import main\n\nmain()\n")
    ray.chmod(0o755)
    return python


def measured(python, tree, name):
    """Run one benchmark of one tree, with an embedded SageMaker of its own; return its figures by name."""
    # Those that import nothing of raysm are run from here, so that both trees are measured by one
    # program.
    place = ROOT if name in FROM_HERE else tree
    command = [str(python), str(place / f"tests/benchmarks/{name}.py"), *COMMANDS[name]]
    environment = {**os.environ, "RAYSM_HOME": str(python.parents[1] / "home")}
    out = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    down = [str(python), "-c", "from raysm.cli.main import main; main(['local', 'down'])"]
    subprocess.run(down, cwd=tree, env=environment, capture_output=True, check=False)
    found = figures(name, out.stdout)
    # Some end with 1 where a goal of their own is missed.
    if not found:
        raise SystemExit(
            f"{name} of {tree} ended with {out.returncode}:\n{out.stdout[-2000:]}{out.stderr[-2000:]}"
        )
    return found


def figures(name, text):
    """Return the figures that a benchmark has printed, by name."""
    case, values = "", {}
    for line in text.splitlines():
        if heading := CASE.match(line):
            case = f"{heading[1]}, "
        for pattern in FIGURES[name]:
            if match := re.match(pattern, line):
                values[f"{case}{match[1]}"] = float(match[2])
    return values


def compared(key, before, today):
    """Return how today's values stand to the others': the ratios of the medians and of the best; above 1 is worse."""
    if key.endswith(MORE_IS_BETTER):
        return statistics.median(before) / statistics.median(today), max(before) / max(today)
    if not statistics.median(before) or not min(before):
        return 1.0, 1.0
    return statistics.median(today) / statistics.median(before), min(today) / min(before)


def report(commit, values):
    print(
        f"\n{'medians, and the ratio: above 1 is worse':52}{commit:>10}{'today':>10}{'ratio':>8}{'of the best':>13}"
    )
    missed = []
    for name, key in dict.fromkeys((name, key) for _, name, key in values):
        before, today = values[commit, name, key], values["today", name, key]
        if not before or not today:
            continue
        ratio, best = compared(key, before, today)
        # Either alone may be chance: a change that costs is seen in both.
        holds = (
            statistics.median(today) <= LIMITS[key]
            if key in LIMITS
            else min(ratio, best) <= ALLOWED
        )
        if not holds:
            missed.append(f"{name}: {key}")
        print(
            f"{f'{name}: {key}':52}{statistics.median(before):10.3f}{statistics.median(today):10.3f}"
            f"{ratio:8.3f}{best:13.3f} {'' if holds else 'MISSED'}"
        )
    print(f"missed: {', '.join(missed)}" if missed else "all as it is asked for")


def unpacked(commit, folder):
    """Write the tree of ``commit`` into ``folder``, and return it."""
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="whose tree is measured beside this one")
    parser.add_argument(
        "benchmarks", nargs="*", metavar="benchmark", help=f"of {', '.join(COMMANDS)}; all without"
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if unknown := set(arguments.benchmarks) - set(COMMANDS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        trees = {arguments.commit: unpacked(arguments.commit, Path(folder) / "tree"), "today": ROOT}
        pythons = {name: interpreter(tree, Path(folder) / name) for name, tree in trees.items()}
        values = defaultdict(list)
        for number in range(arguments.rounds):
            # Who goes first takes turns too: what comes second finds the files in memory.
            for name in list(trees)[:: -1 if number % 2 else 1]:
                for benchmark in arguments.benchmarks or COMMANDS:
                    for key, value in measured(pythons[name], trees[name], benchmark).items():
                        values[name, benchmark, key].append(value)
                    print(f"round {number + 1}: {benchmark} of {name}", flush=True)
            # After each round, so that a run that is ended early has shown something.
            report(arguments.commit, values)


if __name__ == "__main__":
    main()

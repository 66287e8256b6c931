"""``python3 -m tests.mutate raysm.features.grid.placement``: break a module in one place at a time, and run its tests.

Each change is a mutant. A mutant that fails a test is killed; one that passes all tests survives
and
is printed: either it changes nothing that a user relies on, or a test is missing. First, the tests
run once and it is noted which of them run which lines; a mutant then meets only those that run its
lines.
Lines that run in processes which tests start are not noted: name the tests of such processes with
``--others``, and all of these run for each mutant that the tests before have not killed.
"""

import argparse
import compileall
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.mutate import measure, server
from tests.mutate.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", ".mypy_cache", ".ruff_cache", ".pytest_cache", "site"
)
OPTIONS = (
    "-x",
    "-q",
    "-n",
    "0",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "-W",
    "ignore:Module already imported",
)
MOST_S = 600.0
ENDS = {"0": "survived", "1": "killed", "2": "killed", "4": "killed", "timeout": "killed"}
"""By pytest's exit code; 2 and 4 are a module that cannot be imported."""


@dataclass(frozen=True)
class Reached:
    """The tests that run each line, the quickest first."""

    tests: dict[str, dict]

    def tests_of(self, mutant: Mutant) -> list[str]:
        found = [name for name, test in self.tests.items() if test["lines"]]
        if mutant.statement:
            found = [name for name in found if mutant.statement in self.tests[name]["lines"]]
        return sorted(found, key=lambda name: self.tests[name]["seconds"])

    def seconds(self, names: list[str]) -> float:
        return sum(self.tests[name]["seconds"] for name in names)


def copy_of_tree(folder: Path) -> Path:
    tree = folder / "raysm"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
    shared = ROOT.parent / "shared"
    if shared.is_dir():
        (folder / "shared").symlink_to(shared.resolve())
    compileall.compile_dir(tree / "raysm", quiet=2)
    return tree


def environment(tree: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "RAYSM_HOME": str(tree.parent / "home"), **more}


def measured(tree: Path, path: Path, chosen: list[str], marks: list[str]) -> Reached:
    """Run the chosen tests once; end if one fails."""
    out = tree.parent / "measured.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.mutate.measure",
        *OPTIONS[1:],
        *marks,
        *chosen,
    ]
    file = tree / path
    original = file.read_text()
    file.write_text(measure.recording(original))
    os.utime(file, (0, 0))
    variables = environment(tree, **{measure.OUT: str(out)})
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True)
    file.write_text(original)
    if not out.exists():
        sys.exit(f"the tests did not run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    found = json.loads(out.read_text())
    tests = {name: test for name, test in found.items() if not test["skips"]}
    if failed := [name for name, test in tests.items() if test["fails"]]:
        sys.exit("these tests fail before anything is changed:\n" + "\n".join(failed))
    return Reached(tests)


class Copy:
    """One copy of the tree, and a process that has collected the tests, and forks for each run."""

    def __init__(self, tree: Path, path: Path, chosen: list[str], marks: list[str]) -> None:
        self.tree, self.path, self.marks = tree, path, marks
        self.original = (tree / path).read_text()
        self._server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "tests.mutate.server",
                *OPTIONS,
                *marks,
                *chosen,
            ],
            cwd=tree,
            env=environment(tree, **{server.MODULE: str(path)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, mutant: Mutant, tests: list[str], limit_s: float, *, anew: bool = True) -> str:
        """Run tests with a mutant; return what became of it.

        Args:
            anew: Import raysm and the tests anew, instead of replacing the code of functions.
        """
        file = self.tree / self.path
        file.write_text(mutant.source)
        # Python takes compiled code for current if the source's time, in seconds, and size are as
        # they were.
        os.utime(file, (mutant.number, mutant.number))
        run = {
            "collected": [] if anew else tests,
            "arguments": [*OPTIONS, *self.marks, *tests],
            "limit_s": limit_s,
        }
        try:
            print(json.dumps(run), file=self._server.stdin, flush=True)
            code = self._server.stdout.readline().strip()
        finally:
            file.write_text(self.original)
        return ENDS.get(code, f"pytest ended with {code}")

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait()


def judge(
    mutants: list[Mutant], reached: Reached, copies: list[Copy], others: list[str]
) -> dict[str, list[Mutant]]:
    """Run all mutants; return them by what became of them. The unchanged module must survive."""
    unchanged = Mutant(
        number=0, line=0, statement=0, before="", after="", source=copies[0].original
    )
    collected = [name for name in reached.tests if reached.tests[name]["lines"]]
    everything = [*collected, *others]
    if not everything:
        sys.exit(
            "no test runs a line of this module; name those that run it in other processes with --others"
        )
    began_s = time.monotonic()
    end = copies[0].run(unchanged, everything, MOST_S)
    if end == "survived" and collected:
        end = copies[0].run(unchanged, collected, MOST_S, anew=False)
    if end != "survived":
        said = (copies[0].tree / server.LOG).read_text()[-3000:]
        sys.exit(
            f"{said}\nthe unchanged module is {end}: its tests depend on each other, or on time"
        )
    others_limit_s = min(MOST_S, 20 + 4 * (time.monotonic() - began_s))
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    became: defaultdict[str, list[Mutant]] = defaultdict(list)
    turn = threading.Lock()

    def work(copy: Copy) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            tests = reached.tests_of(mutant)
            limit_s = min(MOST_S, 20 + 10 * reached.seconds(tests))
            end = "not reached"
            if tests and mutant.statement:
                end = copy.run(mutant, tests, limit_s, anew=False)
            if tests and end != "killed":
                # A function may have been called when its module was imported.
                end = copy.run(mutant, tests, limit_s)
            if end != "killed" and others:
                end = copy.run(mutant, others, others_limit_s)
                tests += others
            with turn:
                became[end].append(mutant)
                if end != "killed":
                    print(f"{end} {f'({len(tests)} tests)' if tests else ''} {mutant}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return became


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.mutate", description=__doc__.splitlines()[0]
    )
    parser.add_argument("module", help="such as raysm.features.grid.placement")
    parser.add_argument(
        "tests", nargs="*", help="files, folders or tests (default: the folder of tests beside it)"
    )
    parser.add_argument(
        "--marks", default="not long and not soak and not browser", help="as pytest's -m"
    )
    parser.add_argument(
        "--others", nargs="*", default=[], help="tests that run its lines in other processes"
    )
    parser.add_argument("--lines", help="only mutants of these lines, such as 20-60")
    parser.add_argument("--numbers", help="only these mutants, such as 4,17")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_intermixed_args()
    path = Path(*arguments.module.split(".")).with_suffix(".py")
    if not (ROOT / path).is_file():
        parser.error(f"no such module: {path}")
    mutants = mutants_of((ROOT / path).read_text())
    if arguments.lines:
        first, _, last = arguments.lines.partition("-")
        mutants = [each for each in mutants if int(first) <= each.line <= int(last or first)]
    if arguments.numbers:
        mutants = [each for each in mutants if str(each.number) in arguments.numbers.split(",")]
    if arguments.list:
        print(*mutants, sep="\n")
        return 0
    marks = ["-m", arguments.marks]
    chosen = arguments.tests or [str(Path("tests", *path.parent.parts[1:]))]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = copy_of_tree(folder / "0")
        reached = measured(first, path, chosen, marks)
        print(f"measured after {time.monotonic() - began_s:.0f} s", flush=True)
        trees = [first]
        for number in range(1, arguments.processes):
            shutil.copytree(folder / "0", folder / str(number), symlinks=True)
            trees.append(folder / str(number) / "raysm")
        copies = [Copy(tree, path, chosen, marks) for tree in trees]
        print(f"{arguments.module}: {len(mutants)} mutants, {len(reached.tests)} tests", flush=True)
        try:
            became = judge(mutants, reached, copies, arguments.others)
        finally:
            for copy in copies:
                copy.close()
    counts = ", ".join(f"{len(each)} {name}" for name, each in became.items())
    print(f"{arguments.module}: made {len(mutants)}, {counts}; {time.monotonic() - began_s:.0f} s")
    return len(became["killed"]) < len(mutants)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())

"""``python -m tests.hangs [--only EXPRESSION] [--record FILE]``: run programs, and count what the watchdog says.

For a program that hangs, it counts whether the sentence names the line to blame, and the rank where
there are ranks, and after how many seconds without a line. For one that only works slowly, any stall
is a false alarm. Endless loops and swapping are work, and so are not expected to be named, but count.

Many programs share a job, one after the other.
The exit code is 1 after a false alarm, or if a hang was not named within a minute of ``--stall``.
"""

import argparse
import ast
import contextlib
import itertools
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import cloudpickle

import raysm
from raysm.core.client.job.description import SecondaryStatus
from raysm.core.protocol.events import State, is_usage, parse
from tests.hangs.programs import swapping

PROGRAMS = Path(__file__).with_name("programs")
HELPERS = ("reduce", "goes_on", "prepared", "remove_group")
CASE_DECORATOR = "repeats_in_a_folder"
"""It makes a case of a function with an argument."""
WORK = ("ranks.endless_loop", "ranks.endless_call", "ranks.swapping")
"""Hangs that look like work."""
NAMED_WITHOUT_A_LINE = {
    "stopped": "rank 1 is stopped",
    "stopped_actor": "is stopped by a signal",
    "waits_for_a_signal": "rank 1 is waiting for a signal",
}
NAMED_IN_S = 60.0
"""Seconds after ``stall_s`` within which a hang must be named."""
ENDS_S = 240.0
"""Seconds within which a slow program ends, and in which one that hangs is watched if it prints."""
BEGINS_S = 300.0
CASES_OF_A_JOB = 30


@dataclass(frozen=True)
class Case:
    file: Path
    function: str

    @property
    def name(self):
        return f"{self.file.stem}.{self.function}"

    @property
    def hangs(self):
        return not self.file.name.startswith("slow_")

    @property
    def shares_a_job(self):
        return self.file.stem not in ("calls", "ray_train")

    @property
    def _marks(self):
        """The lines to blame, each with the rank to blame if the program has ranks."""
        lines = self.file.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if found := re.search(rf"# guilty( rank (\d+))?:.* {self.function}\b", line):
                yield number, int(found[2] or 1)

    @property
    def is_marked(self):
        return self.function in NAMED_WITHOUT_A_LINE or any(self._marks)

    def is_named_by(self, sentence):
        parts = sentence.split("; ")
        if self.function in NAMED_WITHOUT_A_LINE:
            return any(NAMED_WITHOUT_A_LINE[self.function] in part for part in parts)
        return any(
            f"({self.file.name}:{line})" in part
            and (not self.has_ranks or re.search(rf"\branks? [\d, and]*\b{rank}\b", part))
            for part in parts
            for line, rank in self._marks
        )

    @property
    def has_ranks(self):
        return self.file.stem in ("ranks", "slow_ranks", "ray_train")


def find_cases() -> Iterator[Case]:
    for file in sorted(PROGRAMS.glob("*.py")):
        if file.stem == "ray_train":
            yield Case(file, "ray_train")
            continue
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.FunctionDef) or node.name in HELPERS:
                continue
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if not node.args.args or file.stem == "calls" or CASE_DECORATOR in decorators:
                yield Case(file, node.name)


@dataclass
class Outcome:
    name: str
    sentence: str = ""
    after_s: float = 0.0
    """Seconds from the last line of the program to the stall."""
    problem: str = ""
    is_right: bool = False
    began_s: float = 0.0
    last_line_s: float = 0.0


def read_outcomes(lines, begun: Sequence[Outcome] = ()) -> list[Outcome]:
    """Return what a job's log says of each program that it has begun, in their order.

    Args:
        lines: The log.
        begun: Programs that began before the first line.
    """
    outcomes = [*begun]
    for line in lines:
        event = parse(line.text)
        if begins := re.search(r"\bbegins (\w+)$", line.text):
            # Each rank, trial or part may print it.
            if not outcomes or outcomes[-1].name != begins[1]:
                outcomes.append(Outcome(begins[1], began_s=line.time_s))
        is_stall = isinstance(event, State) and event.name == "stalled"
        # What the head says, and how busy instances are, is no line of the program.
        is_own = not isinstance(event, State) and not line.text.startswith("raysm: ")
        if is_own and not (event and is_usage(event)):
            if outcomes and not outcomes[-1].sentence:
                outcomes[-1].last_line_s = line.time_s
        # A program that has not begun may be starved by others of this machine.
        if is_stall and outcomes and not outcomes[-1].sentence:
            outcomes[-1].sentence = event.detail
            outcomes[-1].after_s = event.time_s - outcomes[-1].last_line_s
    return outcomes


def begun_with(cases: Sequence[Case], started_s: float) -> list[Outcome]:
    """Return the programs that begin with their job, because what they print is not in its log."""
    if cases[0].file.stem != "calls":
        return []
    return [Outcome(cases[0].function, began_s=started_s, last_line_s=started_s)]


def count_early_stalls(lines) -> int:
    """Return the number of stalls between the start of a script and the beginning of its program."""
    early = 0
    is_begun = False
    for line in lines:
        event = parse(line.text)
        if re.search(r"\bbegins \w+$", line.text):
            is_begun = True
        elif isinstance(event, State) and event.name == "stalled":
            early += not is_begun
            is_begun = False
    return early


@contextlib.contextmanager
def submitted(cases: Sequence[Case], stall_s: float, folder: Path):
    """Submit a job that runs programs, one after the other, and stop it at the end.

    In ``folder``, the files ``end-0``, ``end-1`` end programs that hang.
    """
    case = cases[0]
    options = {
        "cluster": raysm.Cluster(count=2),
        "name": f"hang-{case.function.replace('_', '-')}"[:40],
    }
    limits = raysm.Limits(stall_s=stall_s, max_runtime_s=3600)
    with contextlib.ExitStack() as exit_stack:
        if case.file.stem != "calls":
            kind = raysm.TorchScript if case.file.stem.endswith("ranks") else raysm.Script
            names = [each.function for each in cases]
            if case.hangs and case.shares_a_job:
                names.insert(0, str(folder))
            job = raysm.submit(kind(str(case.file), args=names), limits=limits, **options)
        else:
            from tests.hangs.programs import calls

            cloudpickle.register_pickle_by_value(calls)
            function = getattr(calls, case.function)
            if case.function.startswith("session"):
                session = exit_stack.enter_context(raysm.Session(limits=limits, **options))
                session.submit(function)
                job = session.job
            elif case.function.startswith("batch"):
                for part in range(2):
                    (folder / f"{part}.csv").write_text(f"number\n{2 * part}\n{2 * part + 1}\n")
                batch = raysm.Batch(function, batch_size=2)
                job = raysm.submit(batch, inputs={"numbers": str(folder)}, limits=limits, **options)
            else:
                space = {"rate": raysm.choice([1, 2])}
                sweep = raysm.Sweep(
                    function, space=space, metric="loss", mode="min", trials=2, search="grid"
                )
                job = raysm.submit(sweep, limits=limits, **options)
        try:
            yield job
        finally:
            job.stop()


def run_job(cases: Sequence[Case], stall_s: float) -> Iterator[Outcome]:
    """Yield the outcomes of the first of some programs, at least of one."""
    by_function = {case.function: case for case in cases}
    ended = 0
    with tempfile.TemporaryDirectory() as folder, submitted(cases, stall_s, Path(folder)) as job:
        started_s = ended_s = time.time()
        while True:
            is_over = job.done()
            lines = [*job.lines()]
            outcomes = read_outcomes(lines, begun_with(cases, started_s))
            # Others may have the cores of this machine.
            if not outcomes and job.describe().secondary is SecondaryStatus.PENDING:
                ended_s = time.time()
            # The last one goes on if the job does.
            if len(outcomes) == ended:
                late_s = ended_s + BEGINS_S
            elif cases[0].hangs:
                late_s = outcomes[-1].last_line_s + stall_s + NAMED_IN_S
                # Some print the same line for ever.
                late_s = min(late_s, outcomes[-1].began_s + ENDS_S)
            else:
                late_s = outcomes[-1].began_s + ENDS_S
            is_late = time.time() > late_s
            is_named = outcomes and outcomes[-1].sentence and cases[0].hangs
            if is_over and outcomes and not outcomes[-1].sentence:
                outcomes[-1].problem = problem_of(job, cases[0])
            whole = len(outcomes) if is_over or is_late or is_named else len(outcomes) - 1
            for outcome in outcomes[ended : max(0, whole)]:
                case = by_function[outcome.name]
                outcome.name = case.name
                is_named = (
                    case.is_named_by(outcome.sentence) and outcome.after_s <= stall_s + NAMED_IN_S
                )
                outcome.is_right = (
                    is_named if case.hangs else not outcome.sentence and not outcome.problem
                )
                yield outcome
            if whole > ended:
                ended, ended_s = whole, time.time()
            for number in range(ended):
                Path(folder, f"end-{number}").touch()
            # The next program begins once a late one has ended.
            can_go_on = (
                cases[0].hangs and cases[0].shares_a_job and time.time() < ended_s + BEGINS_S
            )
            if is_over or (is_late and not can_go_on) or ended == len(cases):
                break
            time.sleep(1)
        if cases[0].shares_a_job and (early := count_early_stalls(lines)):
            print(f"{early} stalls before a program began, in {job.name}", flush=True)
        if not ended:
            yield Outcome(cases[0].name, problem=problem_of(job, cases[0]) or "it did not begin")


def problem_of(job, case: Case) -> str:
    if not job.done():
        return ""
    if str(job.status) != "Completed":
        return str(job.exception())
    return "it does not hang" if case.hangs else ""


def run(cases: Iterable[Case], stall_s: float) -> Iterator[Outcome]:
    """Yield the outcome of each program, in as few jobs as possible."""
    left = {case.name: case for case in cases}
    while left:
        for outcome in run_job([*left.values()], stall_s):
            yield outcome
            del left[outcome.name]


def describe(outcome: Outcome) -> str:
    mark = "right" if outcome.is_right else "WRONG"
    if not outcome.is_right and outcome.name in WORK:
        mark = "is work"
    after = f"{outcome.after_s:5.1f} s" if outcome.sentence else "       "
    text = outcome.sentence or outcome.problem or "no stall"
    return f"{mark:<8}{after}  {outcome.name}: {text}"


def summarize(outcomes: Sequence[Outcome], hanging: set[str]) -> bool:
    """Print the table; return whether all is as it should be."""
    slow = [each for each in outcomes if each.name not in hanging]
    hangs = [each for each in outcomes if each.name in hanging]
    right = [each for each in hangs if each.is_right]
    work = [each for each in hangs if each.name in WORK and not each.is_right]
    alarms = [each for each in slow if each.sentence]
    failed = [each for each in slow if each.problem]
    print(f"hangs             {len(hangs)}")
    if hangs:
        print(f"  named right     {len(right)} ({len(right) / len(hangs):.1%})")
        print(f"  taken for work  {len(work)}")
    if times := [each.after_s for each in right]:
        print(
            f"  after           {statistics.median(times):.1f} s (median), {max(times):.1f} s (at most)"
        )
    print(f"slow programs     {len(slow)}, {len(failed)} failed")
    print(f"  false alarms    {len(alarms)}")
    return len(right) + len(work) == len(hangs) and not alarms and not failed


def in_parts(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    for begin in range(0, len(cases), CASES_OF_A_JOB):
        yield cases[begin : begin + CASES_OF_A_JOB]


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.hangs")
    parser.add_argument("--only", default="", help="cases whose FILE.NAME matches this expression")
    parser.add_argument("--at-once", type=int, default=2, help="jobs that run at the same time")
    parser.add_argument("--stall", type=float, default=10.0, help="stall_s of the jobs")
    parser.add_argument(
        "--record", type=Path, help="file of outcomes; those in it are not run again"
    )
    given = parser.parse_args(arguments)
    every = {case.name: case for case in find_cases()}
    cases = [case for case in every.values() if re.search(given.only, case.name)]
    outcomes = []
    if given.record and given.record.exists():
        recorded = [Outcome(**json.loads(line)) for line in given.record.read_text().splitlines()]
        outcomes += [each for each in recorded if every.get(each.name) in cases]
    known = {outcome.name for outcome in outcomes}
    left = itertools.groupby(
        (case for case in cases if case.name not in known),
        key=lambda case: case.file if case.shares_a_job else case,
    )
    parts = [part for _, of_a_file in left for part in in_parts([*of_a_file])]
    lock = threading.Lock()

    def run_and_print(part):
        for outcome in run(part, given.stall):
            with lock:
                print(describe(outcome), flush=True)
                outcomes.append(outcome)
                if given.record:
                    with given.record.open("a") as file:
                        print(json.dumps(asdict(outcome)), file=file)

    with contextlib.ExitStack() as exit_stack:
        if any(case.function == "swapping" for part in parts for case in part):
            exit_stack.enter_context(swapping.prepared())
        pool = exit_stack.enter_context(ThreadPoolExecutor(given.at_once))
        for _ in pool.map(run_and_print, parts):
            pass
    is_right = summarize(outcomes, {case.name for case in every.values() if case.hangs})
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

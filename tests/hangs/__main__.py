"""``python -m tests.hangs [--only EXPRESSION] [--stall 10]``: run programs, and count what the watchdog says.

For a program that hangs, it counts whether the sentence names the line to blame, and the rank where
there are ranks, and after how many seconds without a line. For one that only works slowly, any stall
is a false alarm. Endless loops count apart: they are work, and so are not expected to be named.
The exit code is 1 after a false alarm, or if a hang was not named.
"""

import argparse
import ast
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import raysm
from raysm.core.protocol.events import State, parse

PROGRAMS = Path(__file__).with_name("programs")
HELPERS = ("reduce", "goes_on")
WORK = ("endless_loop", "endless_call")
"""Hangs that look like work."""
NAMED_WITHOUT_A_LINE = {
    "stopped": "rank 1 is stopped",
    "stopped_actor": "is stopped by a signal",
    "waits_for_a_signal": "rank 1 is waiting for a signal",
}
MAX_STALLS = 12
"""Times ``stall_s`` after which a hang counts as not named."""
ENDS_S = 240.0


@dataclass(frozen=True)
class Case:
    file: Path
    name: str

    @property
    def hangs(self):
        return not self.file.name.startswith("slow_")

    @property
    def workload(self):
        has_ranks = self.file.stem.endswith("ranks")
        kind = raysm.TorchScript if has_ranks else raysm.Script
        return kind(str(self.file), args=[self.name])

    @property
    def marks(self):
        """What the sentence about the hang must have: one of the places, or the text."""
        if self.name in NAMED_WITHOUT_A_LINE:
            return [NAMED_WITHOUT_A_LINE[self.name]]
        return [
            f"({self.file.name}:{number})"
            for number, line in enumerate(self.file.read_text().splitlines(), 1)
            if re.search(rf"# guilty:.* {self.name}\b", line)
        ]

    def is_named_by(self, sentence):
        parts = [part for part in sentence.split("; ") if any(mark in part for mark in self.marks)]
        if self.file.stem in ("ranks", "ray_train"):
            parts = [part for part in parts if re.search(r"\branks? (\d+, )*1\b", part)]
        return bool(parts)


def find_cases():
    for file in sorted(PROGRAMS.glob("*.py")):
        if file.stem == "ray_train":
            yield Case(file, "ray_train")
            continue
        for node in ast.parse(file.read_text()).body:
            is_case = isinstance(node, ast.FunctionDef) and not node.args.args
            if is_case and node.name not in HELPERS:
                yield Case(file, node.name)


@dataclass
class Outcome:
    case: Case
    sentence: str = ""
    after_s: float = 0.0
    """Seconds from the last line of the program to the stall."""
    problem: str = ""

    @property
    def is_right(self):
        if not self.case.hangs:
            return not self.sentence and not self.problem
        return self.case.is_named_by(self.sentence)


def run(case, stall_s):
    limits = raysm.Limits(stall_s=stall_s, max_runtime_s=int(ENDS_S))
    job = raysm.submit(
        case.workload,
        cluster=raysm.Cluster(count=2),
        limits=limits,
        name=f"hang-{case.name.replace('_', '-')}"[:40],
    )
    outcome = Outcome(case)
    until_s = time.monotonic() + (60 + MAX_STALLS * stall_s if case.hangs else ENDS_S)
    last_line_s = 0.0
    try:
        while time.monotonic() < until_s and not outcome.sentence:
            is_over = job.done()
            for line in job.lines():
                event = parse(line.text)
                if event is None and not line.text.startswith("raysm: "):
                    last_line_s = max(last_line_s, line.time_s)
                # A program that has not begun may be starved by others of this machine.
                if isinstance(event, State) and event.name == "stalled" and last_line_s:
                    outcome.sentence = event.detail
                    outcome.after_s = event.time_s - last_line_s
                    break
            if is_over:
                break
            time.sleep(1)
        if job.done() and str(job.status) != "Completed":
            outcome.problem = str(job.exception())
        elif job.done() and case.hangs:
            outcome.problem = "it does not hang"
    finally:
        job.stop()
    return outcome


def describe(outcome):
    case = outcome.case
    mark = "right" if outcome.is_right else "WRONG"
    if not outcome.is_right and case.name in WORK:
        mark = "is work"
    after = f"{outcome.after_s:5.1f} s" if outcome.sentence else "       "
    text = outcome.sentence or outcome.problem or "no stall"
    return f"{mark:<8}{after}  {case.file.stem}.{case.name}: {text}"


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.hangs")
    parser.add_argument("--only", default="", help="cases whose FILE.NAME matches this expression")
    parser.add_argument("--at-once", type=int, default=2, help="jobs that run at the same time")
    parser.add_argument("--stall", type=float, default=10.0, help="stall_s of the jobs")
    given = parser.parse_args(arguments)
    cases = [
        case for case in find_cases() if re.search(given.only, f"{case.file.stem}.{case.name}")
    ]
    outcomes = []
    with ThreadPoolExecutor(given.at_once) as pool:
        for outcome in pool.map(lambda case: run(case, given.stall), cases):
            print(describe(outcome), flush=True)
            outcomes.append(outcome)
    hangs = [each for each in outcomes if each.case.hangs and each.case.name not in WORK]
    slow = [each for each in outcomes if not each.case.hangs]
    right = [each for each in hangs if each.is_right]
    times = sorted(each.after_s for each in hangs if each.sentence)
    alarms = [each for each in slow if each.sentence]
    print(f"{len(right)} of {len(hangs)} hangs named right", end="")
    if times:
        print(f", after {times[len(times) // 2]:.1f} s (at most {times[-1]:.1f} s)", end="")
    print(f"; {len(alarms)} false alarms in {len(slow)} slow programs")
    return 0 if len(right) == len(hangs) and all(each.is_right for each in slow) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

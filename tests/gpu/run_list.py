"""Run a list of entries, each in a process of its own, keep what they found, and print a table."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu import children
from tests.gpu.figures import Findings

ROOT = Path(__file__).parents[2]
RESULTS = "results.json"
ENTRY_S = 1800
"""Seconds of one entry: a collective that hangs ends it, and not the whole list."""
ENTRY_GRACE_S = 120.0
"""Seconds for its end: that of an embedded SageMaker takes up to 90."""
TAIL = 3000
DONE = "ok"


def sources():
    """Return the commit of this clone, with a digest of what was changed in it since."""
    try:
        commit = _git("rev-parse", "HEAD").decode().strip()
        changes = _git("diff", "HEAD")
        return f"{commit}+{hashlib.sha256(changes).hexdigest()[:12]}" if changes else commit
    except (OSError, subprocess.CalledProcessError):
        # A copy without git.
        digest = hashlib.sha256()
        for path in sorted([*ROOT.glob("raysm/**/*.py"), *ROOT.glob("tests/gpu/*.py")]):
            digest.update(path.read_bytes())
        return f"files {digest.hexdigest()[:12]}"


def _git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def conditions(options, findings):
    """Return what a result is for; another one is no reason to leave an entry out."""
    return {
        "device": findings.device,
        "torch": findings.torch,
        "rows": options.rows,
        "large_rows": options.large_rows,
        "seed": options.seed,
        "model": options.model,
        "commit": sources(),
    }


class Results:
    """What was found last, by the name of the entry; in a file if there is a folder for it."""

    def __init__(self, folder):
        self._path = None if folder is None else folder / RESULTS
        self.found = {}
        if self._path is not None and self._path.exists():
            self.found = json.loads(self._path.read_text())

    def add(self, name, findings, seconds, conditions):
        self.found[name] = {
            "verdict": findings.verdict,
            "conditions": conditions,
            "seen": findings.seen,
            "seconds": round(seconds, 1),
            "findings": findings.as_json(),
        }
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # By another name first, because the machine may be gone at any moment.
            beside = self._path.with_suffix(".partial")
            beside.write_text(json.dumps(self.found, indent=1) + "\n")
            beside.replace(self._path)

    def is_done(self, name, conditions):
        found = self.found.get(name, {})
        return found.get("verdict") == DONE and found.get("conditions") == conditions


def why_not(entry, gpus, options):
    """Return why an entry cannot run here, or ""."""
    if options.device == "cpu":
        if not entry.on_cpu or entry.gpus > 2:
            return f"needs {count_of(entry.gpus)}"
    elif entry.gpus > gpus:
        return f"needs {count_of(entry.gpus)}"
    missing = [name for name in entry.packages if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def count_of(gpus):
    return f"{gpus} GPU{'s' if gpus > 1 else ''}"


def run_apart(entry, options, findings):
    """Run an entry in a process of its own, and return what it has found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings.json"
        command = [sys.executable, "-m", "tests.gpu", "--entry", entry.name, "--write", str(path)]
        command += ["--device", options.device, "--seed", str(options.seed)]
        command += ["--rows", str(options.rows), "--large-rows", str(options.large_rows)]
        command += ["--model", options.model]
        with open(Path(folder) / "output", "w+") as output:
            try:
                children.run(
                    command,
                    limit_s=ENTRY_S,
                    grace_s=ENTRY_GRACE_S,
                    cwd=ROOT,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            except subprocess.TimeoutExpired:
                findings.wrong.append(f"it did not end within {ENTRY_S} s")
                return findings
            if path.exists():
                return Findings.of_json(json.loads(path.read_text()))
            output.seek(0)
            findings.wrong.append(f"its process ended without an answer:\n{output.read()[-TAIL:]}")
            return findings


def run_all(entries, gpus, options, results, new_findings, run=run_apart):
    """Run what can run and was not done before under the same conditions; return rows of (entry, seen, verdict)."""
    rows = []
    here = conditions(options, new_findings())
    for entry in entries:
        reason = why_not(entry, gpus, options)
        if results.is_done(entry.name, here):
            found = results.found[entry.name]
            rows.append((entry, found["seen"], f"{DONE}, done before"))
        elif reason:
            rows.append((entry, "", reason))
        else:
            print(f"{entry.name} …", flush=True)
            begun_s = time.monotonic()
            findings = run(entry, options, new_findings())
            results.add(entry.name, findings, time.monotonic() - begun_s, here)
            print("\n".join(f"    {line}" for line in findings.lines()), flush=True)
            rows.append((entry, findings.seen, findings.verdict))
    return rows


def table(rows):
    """Return the lines of the table: entry, GPUs, expected, seen, verdict."""
    head = ("entry", "GPUs", "expected", "seen", "verdict")
    cells = [
        head,
        *(
            (entry.name, str(entry.gpus), entry.expected, seen, verdict)
            for entry, seen, verdict in rows
        ),
    ]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def exit_code(rows):
    """Return 1 if an entry that ran was wrong or missed its range."""
    return int(any(verdict in ("WRONG", "MISSED") for _, _, verdict in rows))

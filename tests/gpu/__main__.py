"""``python -m tests.gpu``: see ``run.sh``."""

import argparse
import json
import signal
import sys
import traceback
from pathlib import Path

from tests.gpu.entries import ENTRIES
from tests.gpu.figures import Findings
from tests.gpu.run_list import Results, exit_code, run_all, run_apart, table


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="bash tests/gpu/run.sh", description=__doc__)
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="cpu: the same code, in small; its ranks are processes",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of results.json; entries that were ok there, on such a device "
        "with the same commit, torch, seed and sizes, are not run again "
        "(default: write no file, run all)",
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="entries with one of these words")
    parser.add_argument("--list", action="store_true", help="print the entries and their sources")
    parser.add_argument(
        "--rows", type=int, help="of what is measured, times 768 (default: 200,000; cpu: 1,500)"
    )
    parser.add_argument(
        "--large-rows", type=int, help="of the largest that is checked (default: 10**6; cpu: 2,000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument(
        "--model",
        default="facebook/opt-125m",
        help="of vLLM: a name of Hugging Face, or a folder (default: %(default)s)",
    )
    # What a process of one entry is given.
    parser.add_argument("--entry", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    small = options.device == "cpu"
    options.rows = options.rows or (1500 if small else 200_000)
    options.large_rows = options.large_rows or (2000 if small else 1_000_000)
    options.columns, options.steps = (96, 24) if small else (768, 200)
    return options


def gpus_of(options):
    """Return the number of GPUs, and an empty ``Findings`` of this machine."""
    try:
        import torch
    except ImportError:
        return 0, lambda: Findings(device="no torch", torch="none")
    gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    name = torch.cuda.get_device_name() if gpus else "a CPU"
    return gpus, lambda: Findings(device=name, torch=torch.__version__)


def run_one(entry, options, findings):
    """Run an entry here; write what it has found, whatever fails."""
    try:
        entry.run(options, findings)
    except Exception:
        findings.wrong.append(f"{entry.name} failed: {traceback.format_exc()}")
    if options.write:
        options.write.write_text(json.dumps(findings.as_json()))
    return findings


def main(arguments=None, entries=ENTRIES, run=run_apart, gpus=None):
    """Run the list, and print its table; return the exit code.

    ``entries``, ``run`` and ``gpus`` replace those of this machine.
    """
    options = options_of(arguments)
    found, new_findings = gpus_of(options)
    gpus = found if gpus is None else gpus
    if options.entry:
        (entry,) = (each for each in entries if each.name == options.entry)
        return int(bool(run_one(entry, options, new_findings()).wrong))
    if options.only:
        entries = [each for each in entries if any(word in each.name for word in options.only)]
    if options.list:
        for entry in entries:
            print(f"{entry.name}: {entry.gpus} GPUs; {entry.expected} ({entry.source})")
        return 0
    here = new_findings()
    print(f"{gpus} GPUs, {here.device}, torch {here.torch}\n", flush=True)
    rows = run_all(entries, gpus, options, Results(options.out), new_findings, run)
    print("\n".join(table(rows)))
    return exit_code(rows)


if __name__ == "__main__":
    # So that what this process has started is ended too, and not left with the memory of a GPU.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())

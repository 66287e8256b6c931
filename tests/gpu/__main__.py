"""``python -m tests.gpu``: see ``run.sh``."""

import argparse
import json
import sys
import time
import traceback
from functools import partial
from pathlib import Path

import torch

from tests.gpu import exactness, speed, training
from tests.gpu.figures import Findings

NEEDS_RAY = (
    "jobs on GPUs (tasks pinned to devices, Ray Train, the CLI): they need Ray",
    "pipelines, tensor and hybrid parallel: they need several GPUs",
)


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="bash tests/gpu/run.sh", description=__doc__)
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same code, in small"
    )
    parser.add_argument(
        "--out", type=Path, help="folder to write gpu.json into (default: write no file)"
    )
    parser.add_argument(
        "--rows", type=int, help="of what is measured, times 768 (default: 200,000; cpu: 1,500)"
    )
    parser.add_argument(
        "--large-rows", type=int, help="of the largest that is checked (default: 10**6; cpu: 2,000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    options = parser.parse_args(arguments)
    small = options.device == "cpu"
    options.rows = options.rows or (1500 if small else 200_000)
    options.large_rows = options.large_rows or (2000 if small else 1_000_000)
    return options


def parts_of(options):
    """Return what is done, by name, in order: first what matters most where the time runs out."""
    device, small = torch.device(options.device), options.device == "cpu"
    columns = 96 if small else 768
    shape = options.rows, columns
    return {
        "exactness": partial(exactness.compare_all, device, seed=options.seed),
        "exactness of many rows": partial(
            exactness.compare_many, device, (options.large_rows, columns)
        ),
        "speed": partial(speed.measure, device, shape),
        "training": partial(training.measure, device, steps=24 if small else 200),
    }


def main(arguments=None, parts=None):
    """Do all parts, whatever fails among them; return the exit code. ``parts`` replaces those of ``parts_of``."""
    options = options_of(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"torch {torch.__version__} finds no GPU; --device cpu runs the same code without one",
            file=sys.stderr,
        )
        return 2
    name = torch.cuda.get_device_name() if options.device == "cuda" else "a CPU"
    findings = Findings(device=name, torch=torch.__version__, left_out=list(NEEDS_RAY))
    begin = time.monotonic()
    for part, run in (parts or parts_of(options)).items():
        print(f"{time.monotonic() - begin:5.0f} s  {part}", flush=True)
        try:
            run(findings)
        except Exception:
            # The others are worth having: the machine may be gone in a minute.
            findings.wrong.append(f"{part} failed: {traceback.format_exc()}")
        # After each part, for the same reason.
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "gpu.json").write_text(json.dumps(findings.as_json(), indent=1) + "\n")
    print("\n".join(findings.table()))
    return findings.exit_code


if __name__ == "__main__":
    sys.exit(main())

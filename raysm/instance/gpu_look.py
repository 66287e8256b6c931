"""Print what the GPUs of this instance are, and whether they compute, as lines of JSON.

``gpus`` runs this as a process of its own, because a broken GPU or driver can end or hang the
process that uses it. Each line is written as soon as it is known.
"""

import ctypes
import importlib
import json
import subprocess
import sys
from typing import Any

SMI_S = 30.0
SIZE = 512
REMAPPED = "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure"
MEMORY = "--query-gpu=pci.bus_id,retired_pages.pending,ecc.errors.uncorrected.volatile.total"
"""Pages take the place of rows on GPUs before Ampere."""


def ask_smi(query: str) -> list[list[str]]:
    """Return the rows of an answer of ``nvidia-smi``; none if it does not know the question."""
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SMI_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode:
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()]


def driver_cuda() -> list[int] | None:
    """Return the newest CUDA that the driver's library knows, ``[12, 8]``."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
    except (OSError, AttributeError):
        return None
    return [version.value // 1000, version.value % 1000 // 10]


def is_product_right(torch: Any, device: str) -> bool:
    """Return whether a device multiplies two matrices as the CPU does.

    The numbers are small integers, so that every order of the sums gives the same result.
    """
    numbers = (torch.arange(SIZE * SIZE) % 7).reshape(SIZE, SIZE).float()
    there = numbers.to(device)
    return bool(torch.equal((there @ there).cpu(), numbers @ numbers))


def say(**facts: Any) -> None:
    sys.stdout.write(f"{json.dumps(facts)}\n")
    sys.stdout.flush()


def main() -> None:
    say(remapped=ask_smi(REMAPPED), memory=ask_smi(MEMORY))
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:  # user code that needs torch will report it
        return
    problem = ""
    try:
        torch.cuda.init()
    except Exception as error:
        problem = str(error)
    count = torch.cuda.device_count()
    say(
        torch=torch.__version__,
        cuda=torch.version.cuda,
        driver_cuda=driver_cuda(),
        count=count,
        problem=problem,
        architectures=[] if problem else torch.cuda.get_arch_list(),
    )
    for number in range(0 if problem else count):
        name = torch.cuda.get_device_name(number)
        capability = list(torch.cuda.get_device_capability(number))
        say(begins=number, name=name, capability=capability)
        try:
            is_right = is_product_right(torch, f"cuda:{number}")
            problem = "" if is_right else "it computes a wrong matrix product"
        except Exception as error:
            problem = str(error).split("\n")[0] or type(error).__name__
        say(ended=number, problem=problem)


if __name__ == "__main__":
    main()

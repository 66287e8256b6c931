"""Let torch use the GPUs of an instance, and fail the job if it cannot, or if one is broken.

A GPU job must not compute on CPUs silently.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysm.core.protocol.instance_types import OR_CPUS, gpu_count
from raysm.core.protocol.names import counted
from raysm.errors import ClusterError, InvalidConfig
from raysm.instance.environment import CUDA_VISIBLE

if TYPE_CHECKING:
    from raysm.instance.children import Child, Children

ELSEWHERE = "if the job fails or diverges, run it again, on other instances"
LOOK_S = 150.0
"""Seconds after which a process that has written no line is given up: at least so long may each
GPU take for its first product. An instance whose torch takes longer to import is not judged."""
COMPAT = Path("usr/local/cuda/compat")
DRIVER = Path("proc/driver/nvidia/version")


def compat_variables(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return ``LD_LIBRARY_PATH`` with the image's own CUDA driver library, or nothing.

    The library is used if the host's driver is older.

    AWS's images do the same in their entry point, which raysm's jobs replace
    (``start_cuda_compat.sh`` in https://github.com/aws/deep-learning-containers).
    """
    library = root / COMPAT / "libcuda.so.1"
    kernel_module = root / DRIVER
    if not (library.exists() and kernel_module.exists()):
        return {}
    newest = re.search(r"\.so\.([\d.]+)$", os.path.realpath(library))
    driver = driver_version(kernel_module)
    if newest is None or driver is None or _numbers(driver) >= _numbers(newest[1]):
        return {}
    rest = environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(root / COMPAT), *([rest] if rest else [])])}


def driver_version(kernel_module: Path = Path("/") / DRIVER) -> str | None:
    try:
        found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", kernel_module.read_text())
    except OSError:
        return None
    return found[1] if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


async def check_gpus(
    host: str,
    gpus: int,
    environ: Mapping[str, str],
    children: "Children",
    warn: Callable[[str], None],
) -> None:
    """Check that torch sees the GPUs and that each computes, in another process.

    Args:
        host: The name of this instance.
        gpus: The number of its GPUs.
        environ: The environment of user code.
        children: Of the bootstrap.
        warn: Is called with a sentence about each GPU whose memory has faults, and about GPUs that
            torch does not see.

    Raises:
        InvalidConfig: The image's torch cannot use the GPUs.
        ClusterError: A GPU does not compute.
    """
    with tempfile.TemporaryFile() as answer:
        # Not by asyncio, whose own wait for the process would race with the reaper of all children.
        command = [sys.executable, "-P", "-m", "raysm.instance.gpu_look"]
        process = children.start(command, environ, stdout=answer, stderr=subprocess.DEVNULL)
        try:
            status = await wait_while_it_writes(process, answer.fileno(), LOOK_S)
        finally:
            process.signal(signal.SIGKILL)
        answer.seek(0)
        lines = answer.read().splitlines()
    facts: list[dict[str, Any]] = []
    for line in lines:
        # User code that needs torch will report a torch that cannot be imported.
        with contextlib.suppress(ValueError):
            fact = json.loads(line)
            # A plugin of torch may print lines too.
            if isinstance(fact, dict):
                facts.append(fact)
    for each in facts:
        for sentence in memory_faults(host, each):
            warn(sentence)
    check_torch(host, gpus, facts, driver_version() or "unknown")
    if warning := unseen_by_torch(host, gpus, facts):
        warn(warning)
    check_products(host, facts, status)


async def wait_while_it_writes(process: "Child", file: int, look_s: float) -> int | None:
    """Wait for a process that writes into ``file`` as it goes on.

    Returns:
        Its exit status; None if it has written nothing for ``look_s``, or up to twice as long.
    """
    size = 0
    while (status := await process.wait(look_s)) is None:
        # Not by tell: parent and child share the position in the file.
        size_before, size = size, os.fstat(file).st_size
        if size == size_before:
            return None
    return status


def memory_faults(host: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each fault of a GPU's memory that ``nvidia-smi`` knows.

    https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/row-remapping.html
    """
    for gpu, pending, failure in _rows(facts, "remapped"):
        if _is_yes(pending):
            yield (
                f"{host}: a faulty row of the memory of the GPU {gpu} is replaced only when the "
                f"GPU is reset (remapped_rows.pending); {ELSEWHERE}"
            )
        if _is_yes(failure):
            yield (
                f"{host}: a faulty row of the memory of the GPU {gpu} could not be replaced "
                f"(remapped_rows.failure); {ELSEWHERE}"
            )
    for gpu, pending, errors in _rows(facts, "memory"):
        if _is_yes(pending):
            yield (
                f"{host}: a faulty page of the memory of the GPU {gpu} is retired only when the "
                f"GPU is reset (retired_pages.pending); {ELSEWHERE}"
            )
        if errors.isdigit() and int(errors):
            yield (
                f"{host}: the GPU {gpu} has had {errors} uncorrectable errors of its memory "
                f"(ecc.errors.uncorrected.volatile.total); {ELSEWHERE}"
            )


def _rows(facts: Mapping[str, Any], name: str) -> list[list[str]]:
    return [row for row in facts.get(name, ()) if len(row) == 3]


def _is_yes(cell: str) -> bool:
    # Releases of nvidia-smi differ; of GPUs without the feature the cell is "[N/A]".
    return cell.casefold() in ("yes", "1", "true")


def check_torch(host: str, gpus: int, facts: Sequence[Mapping[str, Any]], driver: str) -> None:
    """Raise ``InvalidConfig`` if torch sees no GPU, or is too new or too old for them."""
    torch = next((each for each in facts if "torch" in each), None)
    if torch is None:
        return
    version = torch["torch"]
    cuda = torch["cuda"]
    knows = torch["driver_cuda"]
    built = f"for CUDA {cuda}" if cuda else "without CUDA"
    of_driver = f" for CUDA {'.'.join(map(str, knows))}" if knows else ""
    problem = f" ({torch['problem']})" if torch["problem"] else ""
    # Drivers run programs for later minor versions of their CUDA too.
    is_driver_too_old = bool(cuda and knows) and _numbers(cuda)[0] > knows[0]
    if torch["count"] == 0 or (torch["problem"] and is_driver_too_old):
        raise InvalidConfig(
            f"{host} has {gpus} GPU{'s' * (gpus != 1)}, but torch {version} can use none: "
            f"this image's torch is built {built}, "
            f"and NVIDIA's driver is {driver}{of_driver}{problem}",
            remedy=f"choose an image whose CUDA this driver supports, {OR_CPUS}",
        )
    if torch["problem"]:
        raise ClusterError(f"{host}: CUDA does not start on its GPUs: {torch['problem']}")
    for each in facts:
        if "begins" not in each or has_code(torch["architectures"], each["capability"]):
            continue
        capability = ".".join(map(str, each["capability"]))
        raise InvalidConfig(
            f"{host}: torch {version}, built {built}, has no code for GPU {each['begins']}, "
            f"{each['name']} of compute capability {capability}; it has "
            f"{', '.join(torch['architectures'])}",
            remedy=f"choose an image whose torch has it, {OR_CPUS}",
        )


def unseen_by_torch(host: str, gpus: int, facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a sentence if torch sees fewer GPUs than the instance offers to Ray."""
    seen = next((each["count"] for each in facts if "torch" in each), gpus)
    if seen >= gpus:
        return None
    counts = f"{counted(gpus, 'GPU')}, but torch sees {seen}"
    return f"{host} has {counts}: a GPU may be broken; {ELSEWHERE}"


def missing_gpus(
    host: str, gpus: int, instance_type: str, inherited: Mapping[str, str]
) -> str | None:
    """Return a sentence if nvidia-smi shows fewer GPUs than the instance's type has.

    ``CUDA_VISIBLE_DEVICES`` may leave some out on purpose.
    """
    expected = gpu_count(instance_type)
    if CUDA_VISIBLE in inherited or gpus >= expected:
        return None
    return (
        f"{host}: nvidia-smi shows {counted(gpus, 'GPU')}, but an {instance_type} has {expected}: "
        f"a GPU or the driver may be broken; {ELSEWHERE}"
    )


def has_code(architectures: Sequence[str], capability: Sequence[int]) -> bool:
    """Return whether a GPU can run code for one of ``architectures``, ``sm_90`` or ``compute_90``.

    Machine code (sm) runs on later minor versions, PTX (compute) on all later versions; with an a
    behind it on no later one, with an f on those of the same major version
    (https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list).
    """
    major, minor = capability
    for architecture in architectures:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
        if found is None:
            return True  # a new kind of name
        own = (int(found[2]), int(found[3]))
        if own == (major, minor):
            return True
        if found[4] == "a" or own > (major, minor):
            continue
        if own[0] == major or (found[1] == "compute" and not found[4]):
            return True
    return not architectures


def check_products(host: str, facts: Sequence[Mapping[str, Any]], status: int | None) -> None:
    """Raise ``ClusterError`` if a GPU has failed its first matrix product.

    Args:
        host: The name of this instance.
        facts: The lines of the process that multiplied.
        status: Its exit status; None if it did not end in time.
    """
    ends = {each["ended"]: each["problem"] for each in facts if "ended" in each}
    for each in facts:
        if "begins" not in each:
            continue
        number = each["begins"]
        ending = f"did not end within {LOOK_S:g} s" if status is None else f"ended with {status}"
        problem = ends.get(number, f"the process that used it {ending}")
        if problem:
            raise ClusterError(
                f"{host}: GPU {number}, {each['name']}, fails its first matrix product: {problem}",
                remedy="run the job again, on other instances; if it happens again, leave out "
                "this type or region",
            )

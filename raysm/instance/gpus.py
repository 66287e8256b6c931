"""Let torch use the GPUs of an instance, and fail the job if it cannot.

A GPU job must not compute on CPUs silently.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from raysm.errors import InvalidConfig

if TYPE_CHECKING:
    from raysm.instance.children import Children

LOOK = """
import json, torch
try:
    torch.cuda.init()
    problem = ""
except Exception as error:
    problem = str(error)
print(json.dumps([torch.cuda.device_count(), torch.__version__, torch.version.cuda, problem]))
"""
LOOK_S = 300.0
"""Seconds for torch's import. An instance whose torch takes longer is not judged."""
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


async def check_torch_sees_gpus(
    host: str, gpus: int, environ: Mapping[str, str], children: "Children"
) -> None:
    """Check that torch sees GPUs in another process with user code's environment.

    Raises:
        InvalidConfig: It sees none.
    """
    if gpus == 0 or shutil.which("nvidia-smi") is None or importlib.util.find_spec("torch") is None:
        return
    with tempfile.TemporaryFile() as answer:
        # Not by asyncio, whose own wait for the process would race with the reaper of all children.
        command = [sys.executable, "-P", "-c", LOOK]
        process = children.start(command, environ, stdout=answer, stderr=subprocess.DEVNULL)
        try:
            await process.wait(LOOK_S)
        finally:
            process.signal(signal.SIGKILL)
        answer.seek(0)
        content = answer.read()
    try:
        seen, version, cuda, problem = json.loads(content)
    except ValueError:  # user code that needs torch will report a torch that cannot be imported
        return
    if seen == 0:
        built = f"for CUDA {cuda}" if cuda else "without CUDA"
        driver = driver_version() or "unknown"
        raise InvalidConfig(
            f"{host} has {gpus} GPU{'s' * (gpus != 1)}, but torch {version} sees none: "
            f"this image's torch is built {built}, "
            f"and NVIDIA's driver is {driver}{f' ({problem})' if problem else ''}",
            remedy="choose an image whose CUDA this driver supports, "
            "or compute on CPUs with --allow-cpu (in Python Cluster(allow_cpu=True))",
        )

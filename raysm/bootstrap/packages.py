"""Packages that an image lacks: found out, and installed by pip beside the image's own.

What flows in are the request's requirements and the wheels that travelled, what flows out is a folder of packages.
The image itself is not changed, and what it has already is not installed again: pip first reports what it would
install, then installs exactly that, without its dependencies, into the folder.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raysm.bootstrap.log import remark
from raysm.contract.payload import Payload
from raysm.errors import InvalidRequest
from raysm.request import Workload

__all__ = ["NEEDS", "install", "missing"]

NEEDS = {
    "ray": "ray[default,train]>=2.60,<2.61",
    "cloudpickle": "cloudpickle>=3",
    "numpy": "numpy>=1.26",
    "pyarrow": "pyarrow>=17",
    "safetensors": "safetensors>=0.5",
    "torch": "torch>=2.9,<2.14",
}
"""What instances import, and the pyproject's requirement of each."""

PIP = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--progress-bar", "off")
TAIL = 600


def missing(workload: Workload) -> list[str]:
    """Return the requirements of ``workload`` that this Python cannot import."""
    modules = ("ray", *workload.packages)
    # A kind of the user's may need what raysm has no version for: by the module's name, as most packages are called.
    # Looked for, not imported: torch alone takes seconds.
    return [NEEDS.get(module, module) for module in modules if importlib.util.find_spec(module) is None]


def install(payload: Payload, needed: Sequence[str], site: Path) -> None:
    """Install the payload's requirements, and ``needed``, into the folder ``site``.

    Raises:
        InvalidRequest: pip is not there, too old, or could not install them; its last words are in the message.
    """
    where = []
    if payload.wheels:
        where += ["--find-links", str(payload.wheels)]
    if payload.request.security.isolation:
        # Else pip tries its index several times, with pauses, over a network that is not there.
        where += ["--no-index"]
    wanted = ["-r", str(payload.requirements)] if payload.requirements else []
    wanted += needed
    site.mkdir(parents=True, exist_ok=True)
    named = ", ".join([*payload.request.requirements, *needed])
    with tempfile.TemporaryDirectory(prefix="raysm-pip-") as folder:
        report = Path(folder) / "report.json"
        _pip([*where, "--dry-run", "--quiet", "--report", str(report), *wanted], named)
        exact = _pinned(json.loads(report.read_text(encoding="utf-8")))
        if not exact:
            return
        listed = Path(folder) / "exact.txt"
        listed.write_text("".join(f"{line}\n" for line in exact), encoding="utf-8")
        remark(f"installing {len(exact)} packages for {named}")
        _pip([*where, "--quiet", "--no-deps", "--target", str(site), "-r", str(listed)], named)


def _pinned(report: dict[str, Any]) -> list[str]:
    """Return what pip would install, each as a requirement that names the very file."""
    requirements = []
    for item in report["install"]:
        source, name = item["download_info"], item["metadata"]["name"]
        url = source["url"]
        if "vcs_info" in source:
            # The report has the plain address: a requirement says by which program, and here the commit that was found.
            url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
        if "subdirectory" in source:
            url += f"#subdirectory={source['subdirectory']}"
        requirements.append(f"{name} @ {url}")
    return requirements


def _pip(arguments: Sequence[str], named: str) -> None:
    command = [*PIP, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.stderr.strip():
        sys.stderr.write(done.stderr)
        sys.stderr.flush()
    if done.returncode == 0:
        return
    errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    tail = " ".join(errors) or " ".join(done.stderr.split())[-TAIL:]
    if "No module named pip" in done.stderr:
        tail = f"this image's {sys.executable} has no pip; add it, or the packages, to the image"
    elif "no such option: --report" in done.stderr:
        tail = "this image's pip is older than 22.2; add a newer one, or the packages, to the image"
    raise InvalidRequest(f"the requirements {named} cannot be installed: {tail[:TAIL]}")

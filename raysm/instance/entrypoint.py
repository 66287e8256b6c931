"""Verify the payload, unpack raysm, install missing packages, and run the bootstrap.

The payload's ``start.py`` calls ``main``. The bootstrap runs in the same process, because another
interpreter would import most of it again. An error becomes one line in the failure file.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from raysm.core.protocol import names
from raysm.core.protocol import payload as payloads
from raysm.core.protocol.packages import LIBRARY, unpack
from raysm.core.protocol.payload import Payload, join
from raysm.core.request.job import JOB_CHANNEL
from raysm.instance.environment import base_paths, inherited, read, tell
from raysm.instance.exit_status import exit_by_signal, report_startup_failure
from raysm.instance.gpus import compat_variables
from raysm.instance.log import remark
from raysm.instance.packages import find_missing_packages, install
from raysm.instance.scratch import private_folder, settle_scratch
from raysm.instance.sdk_job import is_driver_folder, make_payload


def main(folder: str) -> int:
    # Without an init process this is PID 1, which ignores SIGTERM without a handler. The exit also
    # ends pip.
    signal.signal(signal.SIGTERM, exit_by_signal)
    # The time is taken before packages are installed, which may take minutes.
    environ: Mapping[str, str] = {names.BEGAN: str(time.monotonic()), **inherited()}
    try:
        environ = settle_scratch(environ)
        environ = without_missing_preload({**environ, **compat_variables(environ)})
        # pip inherits the variables, and may need another folder for its temporary files.
        tell(environ)
        variables, search = _prepare(Path(folder), environ)
    except Exception as error:  # every error becomes a failure reason
        return report_startup_failure(error, environ).exit_code
    tell(variables)
    _import_from(search)
    from raysm.instance.supervisor import main as supervise

    status = supervise({**environ, **variables})
    sys.stdout.flush()
    sys.stderr.flush()
    # The job waits for this process, and destroying its modules takes 20 ms.
    os._exit(status)


def without_missing_preload(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables without LD_PRELOAD if it names a missing file.

    Each program would print an error.
    """
    files = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    # A name without a slash is searched by the loader.
    if all("/" not in file or os.path.exists(file) for file in files):
        return environ
    return {name: value for name, value in environ.items() if name != "LD_PRELOAD"}


def _import_from(search: Sequence[Path]) -> None:
    """Import from the folders that the children find in PYTHONPATH, in place of raysm.zip."""
    sys.path[:] = [*map(str, search), *(path for path in sys.path if Path(path).name != LIBRARY)]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "raysm" and hasattr(module, "__path__"):
            module.__path__.insert(0, str(search[0].joinpath(*name.split("."))))


def _prepare(folder: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], Sequence[Path]]:
    """Verify the payload, unpack and install modules.

    Returns:
        The bootstrap's variables, and the folders of modules.
    """
    private = private_folder(base_paths(environ))
    payload = _load(folder, private, environ)
    search = [unpack(folder / LIBRARY, private / "lib", payload.request.workload.runner)]
    packages = find_missing_packages(payload)
    if packages.lock:
        # Each instance says it, so that their logs show that they have the same packages.
        remark(f"packages of {packages.lock}")
    if packages:
        # Installed packages take precedence over the image's own, and raysm over both.
        search += install(payload, packages, private / "site", environ)
    variables = {
        "PYTHONPATH": _joined(search, environ.get("PYTHONPATH")),
        names.PAYLOAD: str(payload.folder),
    }
    if len(search) > 1:
        programs = [folder / "bin" for folder in search[1:]]
        variables["PATH"] = _joined(programs, environ.get("PATH", os.defpath))
    return variables, search


def _load(folder: Path, private: Path, environ: Mapping[str, str]) -> Payload:
    if is_driver_folder(folder):
        return make_payload(folder, read(environ), private / "payload")
    job_part = folder.parent / JOB_CHANNEL
    # A payload in two parts arrives in two channels, which are joined in a new folder.
    return payloads.load(
        join(folder, job_part, private / "payload") if job_part.is_dir() else folder
    )


def _joined(first: Sequence[Path], rest: str | None) -> str:
    return os.pathsep.join([*map(str, first), *([rest] if rest else [])])

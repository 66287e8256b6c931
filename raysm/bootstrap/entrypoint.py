"""Verify the payload, unpack raysm, install missing packages, and become the bootstrap.

The payload's ``start.py`` calls ``main``. The process replaces itself with ``python -m raysm.bootstrap``, whose
``PYTHONPATH`` has raysm's modules and the installed packages. An error becomes one line in the failure file.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from raysm.bootstrap.environment import base_paths, child_environment, inherited, read, tell
from raysm.bootstrap.exit_status import exit_by_signal, report_startup_failure
from raysm.bootstrap.gpus import compat_variables
from raysm.bootstrap.packages import find_missing_packages, install
from raysm.bootstrap.scratch import private_folder, settle_scratch
from raysm.bootstrap.sdk_job import is_driver_folder, make_payload
from raysm.contract import names
from raysm.contract import payload as payloads
from raysm.contract.packages import LIBRARY, unpack
from raysm.contract.payload import Payload, join
from raysm.request.job import JOB_CHANNEL

# -P: the working folder may contain a random.py or a raysm.py, which must not be imported.
BOOTSTRAP = ("-P", "-m", "raysm.bootstrap")


def main(folder: str) -> int:
    # Without an init process this is PID 1, which ignores SIGTERM without a handler. The exit also ends pip.
    signal.signal(signal.SIGTERM, exit_by_signal)
    # The time is taken before packages are installed, which may take minutes.
    environ: Mapping[str, str] = {names.BEGAN: str(time.time()), **inherited()}
    try:
        environ = settle_scratch(environ)
        environ = without_missing_preload({**environ, **compat_variables(environ)})
        # pip inherits the variables, and may need another folder for its temporary files.
        tell(environ)
        variables = _prepare(Path(folder), environ)
    except Exception as error:  # every error becomes a failure reason
        return report_startup_failure(error, environ).exit_code
    become(variables, environ)


def without_missing_preload(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables without LD_PRELOAD if it names a missing file, because each program would print an error."""
    files = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    # A name without a slash is searched by the loader.
    if all("/" not in file or os.path.exists(file) for file in files):
        return environ
    return {name: value for name, value in environ.items() if name != "LD_PRELOAD"}


def become(variables: Mapping[str, str], environ: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # A blocked SIGTERM stays pending until the bootstrap has a handler; otherwise PID 1 would ignore it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.execve(sys.executable, [sys.executable, *BOOTSTRAP], child_environment(variables, environ=environ))


def _prepare(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Verify the payload, unpack and install modules; return the variables for the bootstrap."""
    private = private_folder(base_paths(environ))
    payload = _load(folder, private, environ)
    search = [unpack(folder / LIBRARY, private / "lib")]
    packages = find_missing_packages(payload)
    if packages:
        # Installed packages take precedence over the image's own, and raysm over both.
        search.append(private / "site")
        install(payload, packages, search[-1], environ)
    variables = {"PYTHONPATH": _joined(search, environ.get("PYTHONPATH")), names.PAYLOAD: str(payload.folder)}
    if len(search) > 1:
        variables["PATH"] = _joined([search[1] / "bin"], environ.get("PATH", os.defpath))
    return variables


def _load(folder: Path, private: Path, environ: Mapping[str, str]) -> Payload:
    if is_driver_folder(folder):
        return make_payload(folder, read(environ), private / "payload")
    job_part = folder.parent / JOB_CHANNEL
    # A payload in two parts arrives in two channels, which are joined in a new folder.
    return payloads.load(join(folder, job_part, private / "payload") if job_part.is_dir() else folder)


def _joined(first: Sequence[Path], rest: str | None) -> str:
    return os.pathsep.join([*map(str, first), *([rest] if rest else [])])

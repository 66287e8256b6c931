"""Verify the payload, unpack raysm, install missing packages, and become the bootstrap.

The payload's ``start.py`` calls ``main``. The process replaces itself with ``python -m raysm.bootstrap``, whose
``PYTHONPATH`` has raysm's modules and the installed packages. An error becomes one line in the failure file.
"""

import os
import signal
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from raysm.bootstrap.environment import base_paths, child_environment, inherited, read, tell
from raysm.bootstrap.exit_status import exit_by_signal, report_startup_failure
from raysm.bootstrap.packages import find_missing_packages, install
from raysm.bootstrap.scratch import private_folder, settle_scratch
from raysm.bootstrap.sdk_job import is_driver_folder, make_payload
from raysm.contract import names
from raysm.contract import payload as payloads
from raysm.contract.packages import LIBRARY
from raysm.contract.payload import Payload, join
from raysm.errors import InvalidPayload
from raysm.request.job import JOB_CHANNEL

# -P: a random.py in the folder where the container begins, or a raysm.py, is not meant.
BOOTSTRAP = ("-P", "-m", "raysm.bootstrap")


def main(folder: str) -> int:
    """Bring the payload in ``folder`` to life.

    Returns:
        The exit code of an instance that could not begin; else this does not return.
    """
    # Without an init in front this is PID 1, which does not hear a SIGTERM that it has no handler for; pip is ended as
    # Python unwinds.
    signal.signal(signal.SIGTERM, exit_by_signal)
    # First: with the installing of packages, which may take minutes.
    environ: Mapping[str, str] = {names.BEGAN: str(time.time()), **inherited()}
    try:
        environ = settle_scratch(environ)
        # pip is a child of this process, and may need another place for its temporary files.
        tell(environ)
        variables = _arrive(Path(folder), environ)
    except Exception as error:  # the last line of defence: every error becomes a reason
        return report_startup_failure(error, environ).exit_code
    become(variables, environ)


def become(variables: Mapping[str, str], environ: Mapping[str, str]) -> NoReturn:
    """Turn into the bootstrap, told ``variables`` beside ``environ``."""
    sys.stdout.flush()
    sys.stderr.flush()
    # A SIGTERM in between stays pending until the bootstrap listens; unblocked, it would be lost where this is PID 1.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.execve(sys.executable, [sys.executable, *BOOTSTRAP], child_environment(variables, environ=environ))


def _arrive(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    place = private_folder(base_paths(environ))
    payload = _load(folder, place, environ)
    search = [unpack(folder / LIBRARY, place / "lib")]
    packages = find_missing_packages(payload)
    if packages:
        # Installed packages take precedence over the image's own, and raysm over both.
        search.append(place / "site")
        install(payload, packages, search[-1], environ)
    variables = {"PYTHONPATH": _joined(search, environ.get("PYTHONPATH")), names.PAYLOAD: str(payload.folder)}
    if len(search) > 1:
        variables["PATH"] = _joined([search[1] / "bin"], environ.get("PATH", os.defpath))
    return variables


def _load(folder: Path, place: Path, environ: Mapping[str, str]) -> Payload:
    if is_driver_folder(folder):
        return make_payload(folder, read(environ), place / "payload")
    job_part = folder.parent / JOB_CHANNEL
    # In two parts: the service brings each channel by itself, and one has not the other's files.
    return payloads.load(join(folder, job_part, place / "payload") if job_part.is_dir() else folder)


def unpack(library: Path, folder: Path) -> Path:
    """Unpack raysm's modules: Ray's workers import them faster, and one of them is run by its path.

    Raises:
        InvalidPayload: It is no zip of modules.
    """
    try:
        with zipfile.ZipFile(library) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidPayload(f"{library} cannot be unpacked into {folder}: {error}") from error
    return folder


def _joined(first: Sequence[Path], rest: str | None) -> str:
    return os.pathsep.join([*map(str, first), *([rest] if rest else [])])

"""The folder that travels to every instance as the channel ``raysm``.

::

    request.json     the JobRequest
    token            the job's secret, hex; readable by its owner alone
    source/          the user's script, or source folder
    digests.json     SHA-256 of every other file, verified before anything of the payload is used
"""

import dataclasses
import hashlib
import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.store import put, read_json
from raysm.errors import InvalidConfig, InvalidPayload, InvalidRequest
from raysm.request.codec import from_json, to_json
from raysm.request.job import JobRequest
from raysm.request.workload import Script

__all__ = ["Payload", "load", "pack"]

REQUEST = "request.json"
TOKEN = "token"
SOURCE = "source"
DIGESTS = "digests.json"

NOT_SOURCE = shutil.ignore_patterns(".git", "__pycache__", ".venv", ".ipynb_checkpoints")
"""What a source folder holds that is no source."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """A payload that was found whole."""

    request: JobRequest
    """What was asked for; a Script's path is relative to ``source``."""
    token_file: Path
    """The file of the job's secret: pass its path on, never its content."""
    source: Path
    """Folder of the user's source."""
    digest: str
    """SHA-256 of ``digests.json``: instances with the same digest were told the same."""

    def token(self) -> bytes:
        """Read the job's secret."""
        return self.token_file.read_bytes()


def pack(request: JobRequest, folder: Path) -> None:
    """Write the payload of ``request`` into ``folder``, which must not exist yet, with a new token.

    Raises:
        InvalidRequest: The script or source folder is not there, or the script is not in the folder.
    """
    folder.mkdir(parents=True, mode=0o700)
    source = folder / SOURCE
    source.mkdir()
    if isinstance(request.workload, Script):
        script = _copy_source(request.workload, source)
        workload = dataclasses.replace(request.workload, script=script, source_dir=None)
        request = dataclasses.replace(request, workload=workload)
    put(folder / TOKEN, secrets.token_hex(32), mode=0o600)
    put(folder / REQUEST, json.dumps(to_json(request), indent=1))
    put(folder / DIGESTS, json.dumps(_digests(folder), indent=1))


def _copy_source(workload: Script, source: Path) -> str:
    script = Path(workload.script)
    if workload.source_dir is None:
        if not script.is_file():
            raise InvalidRequest(f"the script {workload.script!r} is not there, or is no file")
        shutil.copy2(script, source / script.name)
        return script.name
    folder = Path(workload.source_dir)
    if not folder.is_dir():
        raise InvalidRequest(f"source_dir={workload.source_dir!r} is not there, or is no folder")
    if script.is_absolute() or not (folder / script).resolve().is_relative_to(folder.resolve()):
        raise InvalidRequest(f"the script {workload.script!r} must be a path inside source_dir={workload.source_dir!r}")
    if not (folder / script).is_file():
        raise InvalidRequest(f"source_dir={workload.source_dir!r} holds no script {workload.script!r}")
    shutil.copytree(folder, source, ignore=NOT_SOURCE, dirs_exist_ok=True)
    return script.as_posix()


def load(folder: Path) -> Payload:
    """Verify the payload in ``folder`` and read its request.

    Raises:
        InvalidPayload: A file is missing, was added or changed, or the request is malformed; one line that says which.
    """
    try:
        expected = read_json(folder / DIGESTS)
    except InvalidConfig as error:
        raise InvalidPayload(f"no payload: {error}") from error
    if not isinstance(expected, dict):
        raise InvalidPayload(f"{folder / DIGESTS} is not a JSON object of digests")
    try:
        found = _digests(folder)
    except OSError as error:
        raise InvalidPayload(f"the payload in {folder} cannot be read: {error}") from error
    for name in sorted({REQUEST, TOKEN, *expected, *found}):
        if name not in found:
            raise InvalidPayload(f"the payload's file {name!r} is missing")
        if name not in expected:
            raise InvalidPayload(f"the payload's file {name!r} is not listed in {DIGESTS}: somebody added it")
        if found[name] != expected[name]:
            raise InvalidPayload(f"the payload's file {name!r} does not match its digest: it was changed or torn")
    try:
        request = from_json(JobRequest, read_json(folder / REQUEST))
    except (InvalidConfig, InvalidRequest) as error:
        raise InvalidPayload(f"the payload's {REQUEST} cannot be used: {error}") from error
    return Payload(
        request=request,
        token_file=folder / TOKEN,
        source=folder / SOURCE,
        digest=hashlib.sha256((folder / DIGESTS).read_bytes()).hexdigest(),
    )


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / DIGESTS)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

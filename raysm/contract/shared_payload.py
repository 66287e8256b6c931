"""A payload in two parts: what many jobs share, sent once, and what is a job's own, two small objects.

What flows in, on the client's side, are the contents of one job's payload; what flows out are its parts. In the
instance both parts flow in, from a channel each, and the whole payload flows out, which is verified as ever: the job's
own part holds the digests of all files, and the API tells the digest of these.

::

    raysm/       the shared part: start.py, raysm.zip, source/ …, under a prefix that is named by its content
    raysm-job/   the job's own: job.json (the request and the digests), token, function.pkl

A grid of 100,000 rows would send 55 GB of the same files without it.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.payload import FUNCTION, REQUEST, TOKEN, Contents
from raysm.contract.seal import DIGESTS
from raysm.contract.store import put, read_json
from raysm.errors import InvalidConfig, InvalidPayload

__all__ = ["JOB", "Parted", "join"]

JOB = "job.json"
"""Of the job's own part: start.py reads it too, before anything of raysm can be imported."""

# The pickle holds the arguments too: in the shared part, every row would bring another one, that nobody removes.
OWN = (REQUEST, TOKEN, FUNCTION)
"""Files that no two jobs have alike."""


@dataclass(frozen=True, slots=True)
class Parted:
    """The parts of one job's payload."""

    contents: Contents
    """The whole of it."""

    @property
    def digest(self) -> str:
        """SHA-256 of the shared part: two jobs with the same one share it."""
        digests = json.loads(self.contents.digests)
        shared = {name: digest for name, digest in digests.items() if name not in OWN}
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()

    def write_shared(self, folder: Path) -> None:
        """Write the shared part into ``folder``, which must not exist yet.

        Raises:
            InvalidRequest: A file of the user's has changed since the digests were taken.
        """
        self.contents.write(folder)
        for name in (*OWN, DIGESTS):
            (folder / name).unlink(missing_ok=True)

    def own(self) -> Mapping[str, bytes]:
        """Return the job's own part by the names of its files."""
        files = {name: self.contents.files[name] for name in OWN if name in self.contents.files}
        contents = {name: content for name, content in files.items() if isinstance(content, bytes)}
        assert contents.keys() == files.keys(), "made here, never files of the user's"
        # In one object: each costs a request a row.
        job = {"digests": self.contents.digests.decode(), "request": contents.pop(REQUEST).decode()}
        return {JOB: json.dumps(job).encode(), **contents}


def join(shared: Path, job_part: Path, folder: Path) -> Path:
    """Make the whole payload in ``folder``, which must not exist yet; return it. It is not verified yet.

    Raises:
        InvalidPayload: The job's own part is not there, or is none.
    """
    try:
        job = read_json(job_part / JOB)
        digests, request = str(job["digests"]), str(job["request"])
        optional = [name for name in (FUNCTION,) if (job_part / name).exists()]
        files = {name: (job_part / name).read_bytes() for name in (TOKEN, *optional)}
    except (InvalidConfig, OSError, KeyError, TypeError) as error:
        raise InvalidPayload(f"no payload: the job's own part in {job_part} cannot be read: {error}") from error
    # Copied, not linked: Python takes the folder of what a link leads to for a script's own.
    shutil.copytree(shared, folder)
    folder.chmod(0o700)
    put(folder / REQUEST, request)
    for name, content in files.items():
        put(folder / name, content, mode=0o600)
    put(folder / DIGESTS, digests)
    return folder

"""Verify in an instance that a payload is the one that was sent.

The API call that creates the job carries the digests of START and DIGESTS. A user who may write to
the bucket, but not call the API, cannot change them, and so cannot change the payload.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from raysm.core.protocol.store import read_json, sha256_of
from raysm.errors import InvalidConfig, InvalidPayload

START = "start.py"
DIGESTS = "digests.json"
EMPTY = hashlib.sha256().hexdigest()

# The API allows one line of at most 256 characters. The code runs exactly the bytes that it has
# compared, and imports nothing from the file's folder or from the working folder, which
# ``python -c`` puts first in sys.path.
CHECKED = (
    "from sys import*;path[0]or path.pop(0);"
    "from hashlib import*;f,d,o=argv[1:4];b=open(f,'rb').read();"
    "d==sha256(b).hexdigest()or[open(o,'w').write(f+' is not the one that was sent'),exit(2)];"
    "exec(compile(b,f,'exec'),{'__name__':'__main__','__file__':f})"
)
"""Python code that runs the file in its first argument if the second is its SHA-256; else the
third, a file, gets the error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    start: str
    digests: str

    def command(self, folder: PurePath, failure: PurePath) -> list[str]:
        # No shell: SIGTERM would end only the shell, or as PID 1 not even that.
        return [
            "python3",
            "-c",
            CHECKED,
            str(folder / START),
            self.start,
            str(failure),
            self.digests,
        ]


def verify(folder: Path, *needed: str) -> dict[str, str]:
    """Compare every file of a payload or driver folder with its digest; return the digests by name.

    ``needed`` files must be there. Hidden files, bytecode and links count too: Python would prefer
    a module's bytecode to the verified module.
    """
    try:
        expected = read_json(folder / DIGESTS)
    except InvalidConfig as error:
        raise InvalidPayload(f"no payload: {error}") from error
    if not isinstance(expected, dict):
        raise InvalidPayload(f"{folder / DIGESTS} is not a JSON object of digests")
    try:
        # SageMaker may leave out objects of zero bytes.
        for name, digest in expected.items():
            path = folder / name
            if (
                digest == EMPTY
                and not path.exists()
                and path.resolve().is_relative_to(folder.resolve())
            ):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        actual = digests_of(folder)
    except OSError as error:
        raise InvalidPayload(f"the payload in {folder} cannot be read: {error}") from error
    # Needed files are checked even if the digests lack them: the digests may be torn too.
    for name in sorted({*needed, *expected, *actual}):
        if name not in actual:
            raise InvalidPayload(f"the payload's file {name!r} is missing")
        if name not in expected:
            raise InvalidPayload(
                f"the payload's file {name!r} is not listed in {DIGESTS}: "
                "it was added after the job was sent"
            )
        if actual[name] != expected[name]:
            raise InvalidPayload(
                f"the payload's file {name!r} does not match its digest: it was changed or torn"
            )
    return actual


def digests_of(folder: Path) -> dict[str, str]:
    """Return the digests of all files and links below ``folder``, except DIGESTS, by name.

    Links are not followed; the digest of a link is that of its target's path.
    """
    paths = sorted(path for path in folder.rglob("*") if path != folder / DIGESTS)
    return {
        path.relative_to(folder).as_posix(): _digest(path)
        for path in paths
        if path.is_symlink() or not path.is_dir()
    }


def sha256_of_content(content: bytes | Path) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else sha256_of(content)


def _digest(path: Path) -> str:
    if path.is_symlink():
        return sha256_of_content(b"link to " + os.fsencode(path.readlink()))
    # A pipe or a device has no content that could be verified, and opening it might block.
    return sha256_of(path) if path.is_file() else "not a file"

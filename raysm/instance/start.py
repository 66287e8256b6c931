"""The first program of an instance, run by its image's Python.

The command is ``python3 .../raysm/start.py``.

It lies at the top of the payload. Older Pythons must be able to parse it, because it writes into
the failure file that they are too old. It verifies raysm.zip and then calls
``raysm.instance.entrypoint``. A job of raysm's own client runs it by ``seal.CHECKED``, whose last
argument is the digest of the digests.
"""

import hashlib
import json
import os
import sys

LIBRARY = "raysm.zip"
LEAST = (3, 11)
DIGESTS = "digests.json"
OWN = "raysm-job"
JOB = "job.json"
BAD_CONFIG = 2


def main() -> int:
    folder = os.path.dirname(os.path.abspath(__file__))
    problem = _find_problem(folder)
    if problem:
        return _fail(folder, problem)
    # The folder itself is removed from sys.path, because the payload's other files are not modules.
    sys.path[:] = [os.path.join(folder, LIBRARY)] + [
        path for path in sys.path if os.path.abspath(path) != folder
    ]
    from raysm.instance.entrypoint import main as run_entrypoint

    return run_entrypoint(folder)


def _find_problem(folder: str) -> str:
    if sys.version_info < LEAST:
        text = "raysm needs Python %d.%d or later, but this image's %s is %s; use another image"
        return text % (LEAST[0], LEAST[1], sys.executable, sys.version.split()[0])
    try:
        digests = _digests(folder)
        # The API call contains this digest, so a user who can only write to the bucket cannot
        # change it. A job of the SDK has none; in a framework image the arguments are
        # hyperparameters: --lr 0.1.
        if (
            len(sys.argv) > 4
            and not sys.argv[1].startswith("-")
            and hashlib.sha256(digests).hexdigest() != sys.argv[4]
        ):
            return (
                "the payload is not the one that was sent: someone changed "
                + DIGESTS
                + " in its bucket"
            )
        # Only the library is verified here; its code verifies the rest.
        expected = json.loads(digests.decode())[LIBRARY]
        with open(os.path.join(folder, LIBRARY), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = (LIBRARY, type(error).__name__, error)
        return "no payload: %s cannot be verified: %s: %s" % found  # noqa: UP031
    return (
        ""
        if digest == expected
        else "the payload's file '" + LIBRARY + "' does not match its digest: it was torn"
    )


def _digests(folder: str) -> bytes:
    """Return the digests from digests.json, or from the job's own part of a two-part payload."""
    digests = os.path.join(os.path.dirname(folder), OWN, JOB)
    if os.path.exists(digests):
        with open(digests, "rb") as file:
            return str(json.loads(file.read().decode())["digests"]).encode()
    with open(os.path.join(folder, DIGESTS), "rb") as file:
        return file.read()


def _fail(folder: str, reason: str) -> int:
    sys.stderr.write("raysm: " + reason + "\n")
    # Channels lie below base/input/data, or in a Processing job below base/processing/input.
    base = folder
    while os.path.basename(base) not in ("input", ""):
        base = os.path.dirname(base)
    base = os.path.dirname(base)
    processing = os.path.basename(base) == "processing"
    output = os.path.join(os.path.dirname(base) if processing else base, "output")
    try:
        if not os.path.isdir(output):
            os.makedirs(output)
        with open(os.path.join(output, "message" if processing else "failure"), "w") as file:
            file.write(reason)
    except OSError as error:
        sys.stderr.write("raysm: the failure file cannot be written: " + str(error) + "\n")
    return BAD_CONFIG


if __name__ == "__main__":
    sys.exit(main())

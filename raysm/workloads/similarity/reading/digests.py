"""The SHA-256 of a matrix's files, which the manifest tells and finished blocks are kept under.

It takes about as long as reading the files. Only the record of blocks needs it, so a thread computes it: beside the
first tasks, or while the cluster forms.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

from raysm.workloads.similarity.reading.files import matrix_files

__all__ = ["begin", "digest", "digest_of", "file_digests", "in_thread", "joined"]

CHUNK_BYTES = 16 << 20

_started: dict[Path, "Future[str]"] = {}
"""Of this process, until they are asked for."""


def begin(path: Path) -> None:
    """Start to compute the digest of a file or folder, for the ``digest`` that will ask for it."""
    _started[path] = in_thread(lambda: digest_of(path))


def digest(path: Path) -> "Future[str]":
    """Return what will be ``digest_of(path)``."""
    # Once: by the next time, the file may be another one.
    return _started.pop(path, None) or in_thread(lambda: digest_of(path))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; of a folder, that of the lines ``<sha256>  <name>`` of its files in their order."""
    return joined(file_digests(path))


def file_digests(path: Path) -> list[tuple[str, str]]:
    """Return (name, SHA-256) of each of a channel's files, in their order."""
    sums = []
    for name, file in matrix_files(path):
        with file.open("rb") as stream:
            sums.append((name, _sha256(stream)))
    return sums


def joined(sums: Sequence[tuple[str, str]]) -> str:
    """Return the digest of a matrix from those of all its files, in their order, wherever each of them lies."""
    if len(sums) == 1:
        return sums[0][1]
    return hashlib.sha256("".join(f"{value}  {name}\n" for name, value in sums).encode()).hexdigest()


def _sha256(stream: BinaryIO) -> str:
    sha256 = hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        # Without Python's lock: the thread does not hold up others.
        sha256.update(chunk)
    return sha256.hexdigest()


def in_thread(make: Callable[[], str]) -> "Future[str]":
    """Return what will be the value of ``make()``, which is called in a thread."""
    digest: Future[str] = Future()

    def call() -> None:
        try:
            digest.set_result(make())
        except BaseException as error:
            # Whatever it is: without it, who waits for the digest would wait for ever.
            digest.set_exception(error)

    # A thread of a pool would keep a process that has nothing more to do until all is read.
    threading.Thread(target=call, name="digest", daemon=True).start()
    return digest

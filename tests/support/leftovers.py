"""What a local job left on this machine: processes, namespaces, mounts, links, folders."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from raysm.local.instances.process import PREFIX
from tests.support.waiting import until


def left_behind(root: Path, owner: int | None = None) -> list[str]:
    """Return what is left of the jobs that process ``owner`` (default: this one) ran below ``root``.

    Processes are known by paths in arguments, environment or folder, keepers by arguments, and
    links by their alias.
    """
    owner = owner or os.getpid()
    scratch = f"{PREFIX}{owner}-"
    marks = [os.fsencode(f"{root}/"), scratch.encode(), f", owner {owner}".encode() + b"\0"]
    return [
        *_processes(marks, but={os.getpid()}),
        *_mounts(root),
        *_links(owner),
        *(f"folder {path}" for path in Path("/tmp").glob(f"{scratch}*")),
    ]


def assert_nothing_left(root: Path, owner: int | None = None, within_s: float = 30.0) -> None:
    """Fail if something is left after ``within_s``: the kernel takes a moment to remove namespaces."""
    until(
        lambda: not left_behind(root, owner), within_s, lambda: "\n".join(left_behind(root, owner))
    )


@contextlib.contextmanager
def leaving_nothing(root: Path, within_s: float = 30.0):
    """Check at the end of the block, also where it raises, that nothing of a job below ``root`` is left."""
    try:
        yield
    finally:
        assert_nothing_left(root, within_s=within_s)


def _processes(marks, but):
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) in but:
            continue
        with contextlib.suppress(OSError):
            arguments = (folder / "cmdline").read_bytes()
            seen = (
                arguments
                + b"\0"
                + (folder / "environ").read_bytes()
                + os.readlink(folder / "cwd").encode()
                + b"/"
            )
            if any(mark in seen for mark in marks):
                shown = arguments.replace(b"\0", b" ").decode(errors="replace")
                yield f"process {folder.name} in {os.readlink(folder / 'ns' / 'net')}: {shown}"


def _mounts(root):
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if str(root) in line:
            yield f"mount {line}"


def _links(owner):
    if shutil.which("ip"):
        for link in json.loads(subprocess.check_output(["ip", "-json", "link", "show"])):
            if link.get("ifalias", "").endswith(f", owner {owner}"):
                yield f"link {link['ifname']}"

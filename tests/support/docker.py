"""Docker for tests: whether it is there, and images made without a registry."""

import functools
import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

from raysm.local.instances import missing_for_docker

PROGRAMS = ("/bin/sh", "/bin/sleep", "/bin/cat", "/bin/ls", "/usr/bin/env", "/usr/bin/getent", "/usr/bin/touch")
TINY = "raysm-test-tiny:latest"


@functools.cache
def why_not() -> str | None:
    """Return why instances of kind docker cannot run here, or None if they can."""
    return missing_for_docker()


@functools.cache
def tiny_image() -> str:
    """Make an image of this machine's shell and a few programs; return its name."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as image:
        for path in sorted(_with_libraries(PROGRAMS)):
            with Path(path).open("rb") as file:
                image.addfile(_entry(path), file)
        for folder in ("tmp", "proc", "sys", "dev", "opt/ml", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            image.addfile(entry)
    change = "ENV PATH=/usr/bin:/bin"
    subprocess.run(
        ["docker", "import", f"--change={change}", "-", TINY], input=content.getvalue(), check=True, capture_output=True
    )
    return TINY


def left_behind(owner=None) -> list[str]:
    """Return the containers and networks of a process's jobs."""
    owner = f"/{owner or os.getpid()}/"
    label = '{{.Label "io.raysm.owner"}}'
    found = []
    for listing in (["container", "ls", "--all"], ["network", "ls"]):
        command = ["docker", *listing, "--filter=label=io.raysm.owner", f"--format={{{{.ID}}}} {label}"]
        found += subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in found if owner in line]


def _with_libraries(programs):
    files = {program for program in programs if os.path.exists(program)}
    for program in list(files):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        files |= set(re.findall(r"(/\S+) \(0x", listed))
    # getent looks names up by way of these, which it loads by itself.
    for library in ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"):
        files |= {str(path) for path in Path("/lib").glob(f"*/{library}")}
    return files


def _entry(path):
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mode = os.stat(path).st_size, 0o755
    return entry

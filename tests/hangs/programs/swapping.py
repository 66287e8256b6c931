"""Give processes less memory than their data needs, so that they swap. Linux with root only."""

import contextlib
import os
import pathlib
import random
import subprocess
import tempfile

MEMORY = 64 << 20
SWAP = 256 << 20
DATA = 192 << 20
GROUPS = pathlib.Path("/sys/fs/cgroup")
# Version 1 of control groups has a folder for memory.
GROUP = (GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS) / "raysm-hangs"


@contextlib.contextmanager
def prepared():
    """Make swap space, and a group of processes that have ``MEMORY`` bytes of memory together.

    Raises:
        OSError: The user is not root, or the system has no such groups.
        subprocess.CalledProcessError: The system does not let this user add swap space.
    """
    with contextlib.ExitStack() as stack:
        file = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()), "swap")
        file.touch(mode=0o600)
        file.write_bytes(bytes(SWAP))
        subprocess.run(["mkswap", file], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", file], check=True)
        stack.callback(subprocess.run, ["swapoff", file], check=True)
        GROUP.mkdir(exist_ok=True)
        stack.callback(remove_group)
        names = ("memory.limit_in_bytes", "memory.max")
        (GROUP / next(name for name in names if (GROUP / name).exists())).write_text(str(MEMORY))
        yield


def remove_group():
    # Another run may use it.
    with contextlib.suppress(OSError):
        GROUP.rmdir()


def touch_pages(goes_on):
    """Write to pages of ``DATA`` bytes in a random order, most of which are swapped out."""
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    pages = bytearray(DATA)
    while goes_on():
        pages[random.randrange(DATA)] = 1

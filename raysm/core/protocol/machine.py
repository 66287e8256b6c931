"""This machine's cgroup limits, and the priority of its processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
UNLIMITED = 2**60
"""cgroup v1 writes a number near 2**63 for 'no limit'."""


def cgroup_value(root: Path, controller: str, name: str) -> str | None:
    """Return the content of a file of this process's cgroup, v2 or v1, or None.

    Inside a container the group is mounted at the root of ``/sys/fs/cgroup``; elsewhere
    ``/proc/self/cgroup`` contains its path.
    """
    base = root / "sys/fs/cgroup"
    candidates = []
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            group = parts[2].lstrip("/")
            if parts[1] == "":
                # On systems with both versions, systemd mounts version 2 below unified.
                candidates += [base / group / name, base / "unified" / group / name]
            elif controller in parts[1].split(","):
                # Controllers that share a tree are mounted as "cpu,cpuacct"; the link "cpu" may be
                # missing.
                candidates += [base / controller / group / name, base / parts[1] / group / name]
    candidates += [base / name, base / controller / name]
    if controller == "cpu":
        candidates.append(base / "cpu,cpuacct" / name)
    return next((text for text in map(text_of, candidates) if text is not None), None)


def memory_limit(root: Path = ROOT) -> int | None:
    limits = [
        cgroup_value(root, "memory", name) for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min(
        (int(text) for text in limits if text and text.isdigit() and 0 < int(text) < UNLIMITED),
        default=None,
    )


def memory_used(root: Path = ROOT) -> int | None:
    """Return the bytes in use by the group, without reclaimable file pages.

    None means that the kernel does not count them.
    """
    for name, inactive in (
        ("memory.current", "inactive_file"),
        ("memory.usage_in_bytes", "total_inactive_file"),
    ):
        text = cgroup_value(root, "memory", name)
        if text and text.isdigit():
            stat = dict(
                line.split(" ", 1)
                for line in (cgroup_value(root, "memory", "memory.stat") or "").splitlines()
            )
            # The files are read one after the other, so the second value may have grown beyond the
            # first.
            return max(0, int(text) - int(stat.get(inactive, "0")))
    return None


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


AUTOGROUP = Path("/proc/self/autogroup")
LAST = 10
"""A tenth of another session's share if both want all CPUs; Ray's daemons need 0.2 of a core
together."""


@contextlib.contextmanager
def others_first() -> Iterator[None]:
    """Give other sessions of this machine the CPUs first, until the block ends."""
    _set_nice(LAST)
    try:
        yield
    finally:
        _set_nice(0)


def go_first() -> None:
    """Move this process, one of Ray's workers, out of Ray's session.

    The priority of that session is lowered here, too.
    """
    _set_nice(LAST)
    if AUTOGROUP.exists():  # without autogroups, another session would only be harder to end
        with contextlib.suppress(OSError):  # the leader of a process group cannot leave its session
            os.setsid()


def _set_nice(nice: int) -> None:
    with contextlib.suppress(OSError):  # without root, the kernel accepts only ten changes a second
        AUTOGROUP.write_text(str(nice))

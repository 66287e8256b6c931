"""Whether this machine can run instances of kind namespace."""

import functools
import subprocess

from raysm.local.instances.network import missing_for_namespaces


@functools.cache
def why_not() -> str | None:
    """Return why instances of kind namespace cannot run here, or None if they can."""
    missing = missing_for_namespaces()
    if missing:
        return missing
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth"],
        capture_output=True,
    )
    return (
        f"instances of kind namespace: this machine allows no network namespaces: {probe.stderr.decode().strip()}"
        if probe.returncode
        else None
    )

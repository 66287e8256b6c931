"""Whether this machine can run instances of kind namespace."""

import functools
import os
import shutil
import subprocess
import sys


@functools.cache
def why_not() -> str | None:
    """Return why instances of kind namespace cannot run here, or None if they can."""
    if sys.platform != "linux":
        return "instances of kind namespace need Linux"
    if os.geteuid() != 0:
        return "instances of kind namespace need root"
    for tool in ("ip", "unshare", "nsenter", "mount"):
        if shutil.which(tool) is None:
            return f"instances of kind namespace need the command {tool}"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth"], capture_output=True
    )
    return f"this machine allows no network namespaces: {probe.stderr.decode().strip()}" if probe.returncode else None

"""Say which transport NCCL will use between the instances, before the first step.

With Elastic Fabric Adapters (EFA) NCCL needs the plugin aws-ofi-nccl. Without it NCCL takes TCP,
which is many times slower, and says so only at ``NCCL_DEBUG=INFO``. The rules are those of NCCL,
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, and of the plugin,
https://github.com/aws/aws-ofi-nccl. They were not tried on an instance with EFA.
"""

import os
from collections.abc import Mapping
from pathlib import Path

PLUGINS = ("libnccl-net.so", "libnccl-net-ofi.so")
"""Names by which NCCL loads the plugin, with ``NCCL_NET_PLUGIN`` unset or ``ofi``."""
LOADER_CACHE = "etc/ld.so.cache"


def describe_transport(
    environ: Mapping[str, str], *, efa: bool, root: Path = Path("/")
) -> tuple[str, str]:
    """Return what NCCL will use between instances, and a warning or "".

    Args:
        environ: Of the workers.
        efa: Whether this instance has EFA.
        root: The root of the file system.
    """
    tcp = f"TCP over {environ.get('NCCL_SOCKET_IFNAME', 'an interface of its choice')}"
    if environ.get("NCCL_NET", "").casefold() == "socket":
        return f"{tcp} (NCCL_NET=Socket)", ""
    if not efa:
        return tcp, ""
    if _has_plugin(environ, root):
        return "EFA, by aws-ofi-nccl", ""
    return tcp, (
        "this instance has EFA, but its image has no aws-ofi-nccl (libnccl-net.so), so NCCL takes "
        "TCP, which is many times slower; use AWS's image for PyTorch, or install "
        "https://github.com/aws/aws-ofi-nccl in yours"
    )


def _has_plugin(environ: Mapping[str, str], root: Path) -> bool:
    """Return whether the loader of dynamic libraries finds the plugin."""
    named = environ.get("NCCL_NET_PLUGIN")
    names = (*PLUGINS, f"libnccl-net-{named}.so", named) if named else PLUGINS
    for folder in filter(None, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        if any((root / folder.lstrip("/") / name).is_file() for name in names):
            return True
    try:
        cache = (root / LOADER_CACHE).read_bytes()
    except OSError:
        return False
    return any(name.encode() + b"\0" in cache for name in names)

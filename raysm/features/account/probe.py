"""The script of ``raysm doctor --run``: prints what each instance of the cluster has."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

CHANNEL = "doctor"
"""The input of the job."""
EMPTY = "empty"
"""Its file of zero bytes."""


def describe(host: str, channel: str) -> str:
    """Return one line about the instance that this runs on."""
    import ray  # here, since a client without Ray imports this module for its constants

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = shutil.disk_usage(os.environ.get("SM_MODEL_DIR", "/")).free
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"{host}: Python {python}, Ray {ray.__version__}, {os.cpu_count()} cores, "
        f"{memory / 2**30:.1f} GiB of memory, "
        f"{free / 2**30:.0f} GiB free, host name {socket.gethostname()}, user {os.getuid()}, "
        f"/tmp {'noexec' if os.statvfs('/tmp').f_flag & os.ST_NOEXEC else 'exec'}, "
        f"empty files {'arrive' if Path(channel, EMPTY).exists() else 'are left out'}"
    )


def main() -> None:
    """Ask each instance of the cluster, and leave the answers as the job's result."""
    import ray

    ray.init(log_to_driver=False)
    look = ray.remote(num_cpus=0)(describe)
    hosts = json.loads(os.environ["SM_HOSTS"])
    channel = os.environ[f"SM_CHANNEL_{CHANNEL.upper()}"]
    lines = ray.get(
        [
            look.options(label_selector={"raysm.io/host": host}).remote(host, channel)
            for host in hosts
        ]
    )
    print("\n".join(lines), flush=True)
    (Path(os.environ["SM_MODEL_DIR"]) / "instances.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""A Docker daemon of the tests' own, of Debian's packages: ``python -m tests.support.docker_daemon COMMAND …``.

The packages are unpacked into a temporary folder. The daemon runs in a network namespace of its
own, because it sets iptables' FORWARD to DROP. Where no daemon can be had the command runs all the
same, and its tests say what is missing.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = ("docker.io", "containerd", "runc", "tini")
IPTABLES = (
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libxtables12",
    "libnftnl11",
    "libmnl0",
    "libnfnetlink0",
)
"""Docker's own name server in a container is reached by rules of iptables."""
CONNTRACK = "libnetfilter-conntrack3"

START_S = 60.0
END_S = 30.0

START = """
ip link set lo up
exec dockerd --host=unix://{folder}/socket --data-root={folder}/data --exec-root={folder}/exec --pidfile={folder}/pid
"""


def why_not() -> str | None:
    """Return why no daemon can be started here; None if one can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "a Docker daemon takes Linux, and root"
    lacking = [name for name in ("apt-get", "dpkg", "unshare", "ip") if shutil.which(name) is None]
    return (
        f"a Docker daemon of Debian's packages takes {' and '.join(lacking)}" if lacking else None
    )


def unpack(folder: Path) -> dict[str, str]:
    """Fetch Debian's packages and unpack them; return the environment in which their programs run."""
    packages = folder / "packages"
    packages.mkdir()
    subprocess.run(
        ["apt-get", "download", "-q", *PACKAGES, *IPTABLES, CONNTRACK],
        cwd=packages,
        check=True,
        capture_output=True,
    )
    root = folder / "root"
    for package in packages.iterdir():
        subprocess.run(
            ["dpkg", "--extract", str(package), str(root)], check=True, capture_output=True
        )
    # Debian links it when the package is installed.
    (root / "usr/sbin/iptables").symlink_to("iptables-nft")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    libraries = next(libraries.parent.glob("*-linux-gnu"), libraries)
    return os.environ | {
        "PATH": f"{root}/usr/sbin:{root}/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
    }


@contextlib.contextmanager
def running(folder: Path):
    """Start a daemon in a folder; yield the variables by which programs find it. At the end nothing of it is left."""
    environment = unpack(folder)
    found = {
        "DOCKER_HOST": f"unix://{folder}/socket",
        "PATH": f"{folder}/root/usr/bin:{os.environ['PATH']}",
    }
    with (folder / "log").open("wb") as log:
        command = ["unshare", "--net", "sh", "-c", START.format(folder=folder)]
        daemon = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _await_answer(daemon, os.environ | found, folder / "log")
        yield found
    finally:
        _end(daemon, folder)


def _await_answer(daemon, environment, log):
    deadline_s = time.monotonic() + START_S
    while (
        subprocess.run(["docker", "version"], env=environment, capture_output=True).returncode != 0
    ):
        words = log.read_text(errors="replace")[-2000:]
        assert daemon.poll() is None, words
        assert time.monotonic() < deadline_s, words
        time.sleep(0.2)


def _end(daemon, folder):
    daemon.terminate()
    try:
        daemon.wait(END_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
    # What a daemon that was killed left mounted: the folder could not be removed.
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split()[1].startswith(str(folder)):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=False)


def main(command):
    """Run a command with a daemon; return its exit status."""
    reason = why_not()
    if reason:
        print(f"no Docker daemon: {reason}")
        return subprocess.run(command).returncode
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="raysm-docker-", dir="/tmp") as folder:
        try:
            with running(Path(folder)) as found:
                return subprocess.run(command, env=os.environ | found).returncode
        except (subprocess.CalledProcessError, AssertionError) as error:
            print(f"no Docker daemon: {error}")
            return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

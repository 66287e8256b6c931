"""Run tests with another release of Ray, by default those that depend on the release.

    python3 -m tests.with_ray 2.53.0 [arguments of pytest]

The release is installed into a virtual environment of its own, on top of the packages of this one.
"""

import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from raysm.core.protocol.packages import RAY_RANGE

SMOKE = ("-m", "smoke", "-n", "0", "tests/cli/test_main.py")
"""That of the smoke tests which starts Ray."""

GPUS = ("-n", "0", "tests/instance/work/test_visible_gpus.py")
"""Which GPUs workers see, for which releases of Ray have different defaults."""

FAULTS = ("-m", "long", "-n", "0", "tests/jobs/test_faults.py")


def installed(version: str, folder: Path) -> Path:
    """Return the Python of a new virtual environment with this Ray and the packages of the one that runs."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python3"
    packages = next(folder.glob("lib/python*/site-packages"))
    # pip installs Ray alone: the other packages, of any version that this Ray admits, are found
    # behind it.
    target = ("--target", str(packages), "--no-deps", "--no-compile", f"ray=={version}")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *target], check=True)
    # As a folder of packages, whose own .pth files are read too.
    (packages / "tests.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    return python


def main(version: str, arguments: list[str]) -> int:
    """Run the tests; return 1 if a test failed."""
    print(f"Ray {version}, of the supported {RAY_RANGE}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        python = installed(version, Path(folder))
        runs = [arguments] if arguments else [FAULTS, SMOKE, GPUS]
        codes = [
            subprocess.run([python, "-m", "pytest", *run], check=False).returncode for run in runs
        ]
    return max(map(bool, codes))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""Docker for tests: whether it is there, and images made without a registry."""

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from raysm.local.instances.docker import missing_for_docker

PROGRAMS = (
    "/bin/sh",
    "/bin/sleep",
    "/bin/cat",
    "/bin/ls",
    "/usr/bin/env",
    "/usr/bin/getent",
    "/usr/bin/touch",
    "/bin/stty",
)
TINY = "raysm-test-tiny:latest"
COMPILING = "raysm-test-compiling:latest"
BUILT = "raysm-test-cpu:latest"
BATCH = "raysm-test-batch:latest"
REPOSITORY = Path(__file__).parents[2]


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
        ["docker", "import", f"--change={change}", "-", TINY],
        input=content.getvalue(),
        check=True,
        capture_output=True,
    )
    return TINY


@functools.cache
def requirements(*extras: str) -> tuple[str, ...]:
    """Return what raysm with these extras requires, and what builds it."""
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return (*project["dependencies"], *optional, "setuptools")


def of_base() -> tuple[str, ...]:
    """Return what containers/Dockerfile installs, and what builds it."""
    (extras,) = re.findall(
        r"/tmp/raysm\[([\w,]+)\]", (REPOSITORY / "containers" / "Dockerfile").read_text()
    )
    return requirements(*extras.split(","))


def _base() -> str:
    """Return the base's name: another one once something else is required."""
    return f"raysm-test-base:{hashlib.sha256(repr(of_base()).encode()).hexdigest()[:12]}"


def why_no_base() -> str | None:
    """Return why no base image can be made here, or None if one can, or is there already."""
    if why_not():
        return why_not()
    if sys.version_info[:2] != (3, 11):
        return "the base image is Debian 12 with this Python's packages, which its Python 3.11 has to be able to read"
    if has(_base()):
        return None
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        return "the base image is made with debootstrap, by root"
    return None


@functools.cache
def base_image() -> str:
    """Make an image that has all packages that raysm requires, as AWS's have some; return its name."""
    if not has(_base()):
        _make_base()
    return _base()


@functools.cache
def compiling_image() -> str:
    """Make an image that compiles the kernels; return its name."""
    if not has(COMPILING):
        with debian("python3,python3-pip,gcc,libc6-dev") as root:
            install(["setuptools"], root / "usr/local/lib/python3.11/dist-packages")
            load(root, COMPILING)
    return COMPILING


@functools.cache
def built_image() -> str:
    """Build containers/Dockerfile on that base; return its name."""
    return _built("Dockerfile", BUILT)


def _built(dockerfile: str, name: str) -> str:
    # Nothing is downloaded: what the base has is kept, as the Dockerfile promises.
    options = ["--network=none", f"--tag={name}"]
    options += [
        f"--build-arg=BASE_IMAGE={base_image()}",
        f"--build-arg=BUILD_IMAGE={compiling_image()}",
    ]
    options += [
        "--build-arg=PIP_OPTIONS=--no-index --no-build-isolation",
        f"--file=containers/{dockerfile}",
    ]
    done = subprocess.run(
        ["docker", "build", *options, "."], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return name


@functools.cache
def batch_image() -> str:
    """Build containers/Dockerfile.batch on that base; return its name."""
    return _built("Dockerfile.batch", BATCH)


def has(image) -> bool:
    return (
        subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode == 0
    )


def _make_base():
    """Make a Debian with Python, pip and the packages of this Python that raysm requires; takes a minute or two."""
    with debian("python3,python3-pip,ca-certificates") as root:
        install(of_base(), root / "usr/local/lib/python3.11/dist-packages")
        load(root, _base())


@contextlib.contextmanager
def debian(packages):
    """Yield the folder of a Debian with a few packages."""
    with tempfile.TemporaryDirectory(prefix="raysm-base-") as folder:
        root = Path(folder) / "root"
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={packages}",
            "bookworm",
            str(root),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield root


def install(requirements, site):
    for source, name in sorted(set(_package_files(requirements))):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, site / name)  # a quarter of the time of a copy
        except OSError:
            shutil.copy(source, site / name)


def load(root, name, *changes):
    tar = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    command = ["docker", "import", *(f"--change={change}" for change in changes), "-", name]
    subprocess.run(command, stdin=tar.stdout, check=True, capture_output=True)
    tar.stdout.close()
    assert tar.wait() == 0


def changed(base, name, steps, packages=None):
    """Make an image of another one by steps of a Dockerfile; ``packages`` fills the folder of that name beside it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(f"FROM {base}\n{steps}\n")
        if packages is not None:
            (Path(folder) / "packages").mkdir()
            packages(Path(folder) / "packages")
        command = ["docker", "build", "--network=none", f"--tag={name}", folder]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return name


@functools.cache
def image_run_as(base, user):
    """Make an image of another one whose instances run as ``user``; return its name."""
    return changed(base, f"{base}-{user}", f"USER {user}")


def _package_files(requirements):
    """Yield the files of installed packages and of all that they require, each with its name in site-packages."""
    seen = set()
    open_ones = [Requirement(text) for text in requirements]
    while open_ones:
        wanted = open_ones.pop()
        if (wanted.name, *sorted(wanted.extras)) in seen:
            continue
        seen.add((wanted.name, *sorted(wanted.extras)))
        # Of two that are on the path, one hides the other; in the image there is to be the newer
        # one.
        found = max(
            importlib.metadata.distributions(name=wanted.name),
            key=lambda item: Version(item.version),
        )
        for text in found.requires or []:
            needed = Requirement(text)
            extras = wanted.extras or {""}
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in extras
            ):
                open_ones.append(needed)
        for file in found.files or []:
            source = Path(found.locate_file(file))
            if ".." not in file.parts and source.is_file():
                yield source, str(file)


def left_behind(owner=None) -> list[str]:
    """Return the containers and networks of a process's jobs."""
    owner = str(owner or os.getpid())
    label = '{{.Label "io.raysm.owner"}}'
    found = []
    for listing in (["container", "ls", "--all"], ["network", "ls"]):
        command = [
            "docker",
            *listing,
            "--filter=label=io.raysm.owner",
            f"--format={{{{.ID}}}} {label}",
        ]
        found += subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    return [line for line in found if line.split()[-1] == owner]


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

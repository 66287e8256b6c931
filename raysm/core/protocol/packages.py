"""The packages of an instance: raysm itself as a zip file, its requirements, and pip's index."""

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import raysm
from raysm.core.features import GROUP, own_entries
from raysm.core.protocol.store import put
from raysm.errors import InvalidPayload

LIBRARY = "raysm.zip"
TRAVELS = ("*.py", "*.[ch]", "*.so", "*.json", "py.typed")
"""Patterns of the files in the zip; instances do not need the demo's data or the files that images
are built from."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold; the real times would give every payload another digest."""
BYTECODE = "__pycache__"
RUN_BY_INSTANCES = ("core/", "instance/", "features/")
"""Folders of the package whose bytecode is sent too: compiling it took each instance a third of a
second."""
ON_THE_LAPTOP = re.compile(
    r"(core/client|cli|features/(account|dashboard|experiments|grid))/"
    r"|features/\w+/(client|notebook|\w*command\w*\.py)"
)
"""What few jobs import, in folders of ``RUN_BY_INSTANCES`` too: it has no bytecode, and stays in
the zip, because each file takes time to create."""
UNCHECKED = (1).to_bytes(4, "little")
"""The flags of bytecode that Python uses without a look at its source (PEP 552)."""


@functools.lru_cache(maxsize=1)
def library() -> bytes:
    package = Path(raysm.__file__).parent
    # An instance has unpacked only a part of it.
    with contextlib.suppress(OSError):
        return (package / LIBRARY).read_bytes()
    # A user who wants no bytecode beside the sources does not want this file there either.
    return kept_library(package, keep=not sys.dont_write_bytecode)


def kept_library(package: Path, *, keep: bool = True) -> bytes:
    """Return a zip of the modules of ``package``.

    The zip is kept beside the bytecode until a module changes, because packing takes as long as a
    command's imports. A zip that is not kept has no bytecode, which takes most of that time.
    """
    paths = sorted(_travelling(package))
    folder = package / BYTECODE
    metadata = _metadata(package.name)
    state = _state_of(package, paths, metadata)
    archive = folder / f"{LIBRARY}.{sys.implementation.cache_tag}.{state}"
    with contextlib.suppress(OSError):
        return archive.read_bytes()
    content = _packed(package, paths, metadata, with_bytecode=keep)
    if keep:
        with contextlib.suppress(OSError):  # the folder may be another user's
            put(archive, content)
            for older in set(folder.glob(f"{LIBRARY}.{sys.implementation.cache_tag}.*")) - {
                archive
            }:
                older.unlink(missing_ok=True)
    return content


def _travelling(package: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(package):
        subfolders[:] = [name for name in subfolders if name != BYTECODE]
        for name in names:
            if any(fnmatch(name, pattern) for pattern in TRAVELS):
                yield Path(folder, name)


def _metadata(package: str) -> dict[str, bytes]:
    """Return the files by which an instance finds raysm's features, as an installation has them."""
    folder = f"{package}-{raysm.__version__}.dist-info"
    entries = "".join(f"{name} = {value}\n" for name, value in own_entries())
    return {
        f"{folder}/METADATA": (
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {raysm.__version__}\n"
        ).encode(),
        f"{folder}/entry_points.txt": f"[{GROUP}]\n{entries}".encode(),
    }


def _state_of(package: Path, paths: Sequence[Path], metadata: Mapping[str, bytes]) -> str:
    """Return a digest of each file's name, size and time of change.

    Python validates bytecode by these, too.
    """
    state = hashlib.sha256(repr(metadata).encode())
    for path in paths:
        status = path.stat()
        state.update(
            f"{path.relative_to(package)} {status.st_size} {status.st_mtime_ns}\n".encode()
        )
    return state.hexdigest()[:16]


def _packed(
    package: Path, paths: Sequence[Path], metadata: Mapping[str, bytes], *, with_bytecode: bool
) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in metadata.items():
            _write(archive, name, data)
        for path in paths:
            name = path.relative_to(package.parent).as_posix()
            source = path.read_bytes()
            files = {name: source}
            inside = path.relative_to(package).as_posix()
            is_run = path.suffix == ".py" and (
                "/" not in inside or inside.startswith(RUN_BY_INSTANCES)
            )
            is_run = is_run and not ON_THE_LAPTOP.match(inside)
            if is_run and with_bytecode:
                # Beside its source, where Python looks for it in a zip; ``unpack`` moves it. Not
                # for constant slices of Python 3.14, which marshal's version 2 lacks.
                with contextlib.suppress(ValueError):
                    files[f"{name}c"] = _bytecode(source, name)
            for name, data in files.items():
                _write(archive, name, data)
    return content.getvalue()


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


def _bytecode(source: bytes, name: str) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    # Version 2: later ones depend on which objects a process shares, and would give payloads
    # different digests.
    return (
        importlib.util.MAGIC_NUMBER
        + UNCHECKED
        + importlib.util.source_hash(source)
        + marshal.dumps(code, 2)
    )


def unpack(library: Path, folder: Path, runner: str = "") -> Path:
    """Unpack a verified zip of raysm, with the bytecode of this Python; return ``folder``.

    Ray's workers import modules from a folder faster than from a zip, and some are run by their
    path. What few jobs import, and each feature but that of the ``runner``, stays in the zip, which
    becomes a part of the package's path.
    """
    own = runner.partition(":")[0].replace(".", "/").split("/")
    try:
        with zipfile.ZipFile(library) as archive:
            for entry in archive.infolist():
                inside = entry.filename.partition("/")[2]
                feature = re.match(r"features/(\w+)/", inside)
                if feature[1] not in own if feature else ON_THE_LAPTOP.match(inside):
                    continue
                if entry.filename.endswith(".pyc"):
                    # Python compiles a module anew if its bytecode is another release's.
                    entry.filename = importlib.util.cache_from_source(
                        entry.filename.removesuffix("c")
                    )
                archive.extract(entry, folder)
            (package,) = {
                name.partition("/")[0]
                for name in archive.namelist()
                if name.endswith("/__init__.py")
            }
        (folder / package / LIBRARY).symlink_to(library.resolve())
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidPayload(f"{library} cannot be unpacked into {folder}: {error}") from error
    return folder


RAY_RANGE = ">=2.53,<2.61"
"""Releases with the interfaces that the bootstrap uses; the private names are optional
(``ray_internals``)."""

NEEDS = {
    # The extra default has the dashboard, and train has pandas for Ray Train.
    "ray": f"ray[default,train]{RAY_RANGE}",
    "IPython": "ipython>=8.18",
    "cloudpickle": "cloudpickle>=3",
    "numpy": "numpy>=1.26",
    "optuna": "optuna>=4",
    "pyarrow": "pyarrow>=17",
    "safetensors": "safetensors>=0.5",
    "torch": "torch>=2.9,<2.16",
    # mlflow-skinny lacks only the server.
    "mlflow": "mlflow-skinny>=3.17",
    "sagemaker_mlflow": "sagemaker-mlflow>=0.5",
}
"""Requirements by the module that instances import, as in pyproject.toml."""


def installed_version(package: str) -> str | None:
    """Return a package's version by its metadata, or None.

    A source tree on the path has no metadata.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")


def name_of(requirement: str) -> str:
    """Return a package's normalized name in a line of requirements.txt: ``a-b`` for ``A_b``.

    The name is empty if the line names no package.
    """
    match = NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""


LOCK = re.compile(r"# packages of (\S+), sha256 ([0-9a-f]{64}), for Python (\S+)")
SHOWN_DIGITS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """The file that requirements were read from; a comment in their first line."""

    file: str
    sha256: str
    python: str
    """The versions of Python that it is for, ``>=3.11``; ``any`` if it does not say."""

    def __str__(self) -> str:
        return f"{self.file} (sha256 {self.sha256[:SHOWN_DIGITS]})"

    @property
    def line(self) -> str:
        return f"# packages of {self.file}, sha256 {self.sha256}, for Python {self.python}"


def locks_in(requirements: Iterable[str]) -> list[Lock]:
    found = [LOCK.fullmatch(line) for line in requirements if line.startswith("#")]
    return [Lock(file=each[1], sha256=each[2], python=each[3]) for each in found if each]


HASH = " --hash="


def is_locked(requirement: str) -> bool:
    """Return whether a requirement has hashes: its file names all that is to be installed."""
    return HASH in requirement


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: ``(2, 60, 1)`` for ``2.60.1rc2+cpu``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def ray_will_do(version: str) -> bool:
    least, below = (release_of(bound.lstrip("<>=")) for bound in RAY_RANGE.split(","))
    return least <= release_of(version) < below


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultIndex:
    url: str
    hosts: tuple[str, ...]


@functools.cache
def default_index() -> DefaultIndex | None:
    try:
        # pip has no public name for it; a test fails if pip removes this one.
        from pip._internal.models.index import PyPI
    except ImportError:
        return None
    return DefaultIndex(url=PyPI.simple_url, hosts=(PyPI.netloc, PyPI.file_storage_domain))


BEFORE_HOST = re.compile(r"(://)[^/\s]*@")
"""Credentials in a URL, up to the last @, because a password may contain one."""


def without_credentials(text: str) -> str:
    return BEFORE_HOST.sub(r"\1***@", text)

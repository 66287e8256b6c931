"""The packages of the user's project: ``uv.lock``, ``pylock.toml`` or ``requirements.txt``.

A lock becomes lines of a requirements file with hashes, which an instance installs without
resolving versions. Their first line is a comment with the name and the SHA-256 of the file.
"""

import functools
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raysm.core.protocol.names import counted
from raysm.core.protocol.packages import (
    HASH,
    Lock,
    default_index,
    is_locked,
    locks_in,
    name_of,
    without_credentials,
)
from raysm.core.protocol.source import Source
from raysm.core.request import AWS, Target
from raysm.errors import InvalidRequest

UV_LOCK = "uv.lock"
PYLOCK = re.compile(r"pylock(\.[^.]+)?\.toml")
"""The names of PEP 751."""
FILES = (UV_LOCK, "pylock.toml", "requirements.txt")
"""The first of them is used: uv.lock can be compared with its project, and the others may have been
exported from it; requirements.txt may leave versions open."""
SHA2 = ("sha256", "sha384", "sha512")
"""The hashes that pip accepts."""


def is_requirements_file(name: str) -> bool:
    file = Path(name).name
    return name.endswith(".txt") or file == UV_LOCK or PYLOCK.fullmatch(file) is not None


def with_project_packages(
    options: Mapping[str, Any], source: Source | None, wheels: Iterable[Path]
) -> tuple[Mapping[str, Any], str]:
    """Add the packages of the file in the source folder, unless the options name requirements.

    Returns:
        The options, and what was taken and what was not, for people; empty if there is no file.
    """
    # A function, or a program without a source folder, has no folder that is the project's.
    folder = source.folder if source is not None and source.script and source.files else None
    there = [name for name in FILES if folder is not None and (folder / name).is_file()]
    if folder is None or not there:
        return options, ""
    sent = {wheel_requirement(wheel.name) for wheel in wheels}
    given = options.get("requirements")
    if given is not None and (not given or set(given) - sent):
        return options, f"the given requirements, not {' or '.join(there)} in {folder}"
    lock, lines = _read(folder / there[0], frozenset(name_of(line) for line in sent))
    others = f"; not {' or '.join(there[1:])} beside it" if there[1:] else ""
    count = counted(sum(not line.startswith("-") for line in lines), "package")
    requirements = [lock.line, *lines, *(given or ())]
    return {**options, "requirements": requirements}, f"{count} of {lock}{others}"


def wheel_requirement(name: str) -> str:
    """Return a wheel's requirement NAME==VERSION; empty if the name is not a wheel's."""
    parts = name.removesuffix(".whl").split("-")
    # Five parts, or six with a build number after the version.
    is_wheel = name.endswith(".whl") and len(parts) in (5, 6)
    return f"{parts[0]}=={parts[1]}" if is_wheel else ""


def check_lock_python(requirements: Iterable[str], target: Target, python: str | None) -> None:
    """Refuse a lock that is for other versions of Python than that of the instances."""
    for lock in locks_in(requirements):
        if python is None or lock.python == "any":
            continue
        # Imported here, because it takes a tenth of the import of the whole client.
        from packaging.specifiers import SpecifierSet

        # The patch release of an image is unknown; the latest one may do.
        if not SpecifierSet(lock.python).contains(f"{python}.99"):
            image = f"the image {target.image} has" if isinstance(target, AWS) else "this one is"
            raise InvalidRequest(
                f"{lock.file} is for Python {lock.python}, and {image} Python {python}",
                remedy="take an image with such a Python, or change requires-python and lock again",
            )


def read_requirements(file: Path) -> list[str]:
    """Return the lines for pip of ``uv.lock``, ``pylock.toml``, or a file like requirements.txt.

    Raises:
        InvalidRequest: The file cannot be read, is stale, or names what an instance cannot install.
    """
    lock, lines = _read(file, frozenset())
    return [lock.line, *lines] if any(map(is_locked, lines)) else list(lines)


def _read(file: Path, sent: frozenset[str]) -> tuple[Lock, tuple[str, ...]]:
    """Return the lines of a file, without those of packages whose wheels are sent."""
    try:
        state = file.stat().st_mtime_ns
        project = file.with_name("pyproject.toml")
        of_project = project.stat().st_mtime_ns if project.is_file() else 0
        return _read_once(file, sent, (state, of_project))
    except OSError as error:
        raise InvalidRequest(f"--requirement {file} cannot be read: {error.strerror}") from error


# Cached, because a grid sends thousands of jobs with one lock.
@functools.lru_cache(maxsize=64)
def _read_once(
    file: Path, sent: frozenset[str], state: tuple[int, ...]
) -> tuple[Lock, tuple[str, ...]]:
    content = file.read_bytes()
    python = "any"
    if file.name == UV_LOCK or PYLOCK.fullmatch(file.name):
        text = _exported(file) if file.name == UV_LOCK else _text(file, content)
        try:
            data = tomllib.loads(text)
            lines = list(dict.fromkeys(_lines_of_pylock(data, file, sent)))
        except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRequest(
                f"{file} is not a lock as in PEP 751: {type(error).__name__} {error}",
                remedy="lock again",
            ) from error
        # A header is one word for the reader.
        python = str(data.get("requires-python") or "any").replace(" ", "")
    else:
        lines = _lines(file, _text(file, content))
    sha256 = hashlib.sha256(content).hexdigest()
    return Lock(file=file.name, sha256=sha256, python=python), tuple(lines)


def _text(file: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Some shells of Windows write UTF-16 for pip freeze > FILE.
        raise InvalidRequest(
            f"--requirement {file} is not UTF-8: {error}; save it as UTF-8"
        ) from error


def _lines(file: Path, text: str) -> list[str]:
    # A line with hashes is continued after a backslash.
    joined = re.sub(r"[ \t]*\\\r?\n[ \t]*", " ", text).splitlines()
    # As in pip: a # inside a word, such as the fragment of a URL, does not begin a comment.
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in joined]
    for line in lines:
        # A file named by -r would not be uploaded, and raysm sets the options of pip in an
        # instance.
        if line.startswith("-"):
            # The URL of a private index often contains credentials.
            shown = without_credentials(line)
            raise InvalidRequest(
                f"--requirement {file}: {shown!r} is an option of pip, not a package; name packages"
            )
    return [line for line in lines if line]


def _exported(file: Path) -> str:
    """Return a uv.lock as a pylock.toml, which uv refuses to write if the lock is stale."""
    if not file.with_name("pyproject.toml").is_file():
        raise InvalidRequest(f"{file} has no pyproject.toml beside it, whose lock it could be")
    found = shutil.which("uv")
    uv = [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") else [found or ""]
    if not uv[0]:
        raise InvalidRequest(
            f"{file} can only be read by uv, which is not installed here",
            remedy="python3 -m pip install uv, or name other requirements: --requirement FILE",
        )
    # Groups are for development; the project's own modules are sent as source.
    options = ("--format", "pylock.toml", "--no-default-groups", "--no-emit-project", "--no-header")
    # Offline, because only a stale lock would be resolved again.
    command = [*uv, "export", "--quiet", "--locked", "--offline", *options]
    command += ["--project", str(file.parent)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        reason = done.stderr.strip().removeprefix("error: ").partition("\n")[0]
        raise InvalidRequest(
            f"{file} does not fit the pyproject.toml beside it (uv: {reason})",
            remedy="run uv lock",
        )
    return done.stdout


def _lines_of_pylock(data: Mapping[str, Any], file: Path, sent: frozenset[str]) -> Iterator[str]:
    if not str(data["lock-version"]).startswith("1."):
        raise InvalidRequest(
            f"{file} has the lock-version {data['lock-version']}; raysm reads version 1"
        )
    packages = [item for item in data["packages"] if name_of(item["name"]) not in sent]
    default = default_index()
    for index in dict.fromkeys(item["index"].rstrip("/") for item in packages if "index" in item):
        if default is None or index != default.url.rstrip("/"):
            yield f"--extra-index-url {index}"
    for item in packages:
        yield _line_of(item, file)


def _line_of(item: Mapping[str, Any], file: Path) -> str:
    name = item["name"]
    marker = item.get("marker", "")
    condition = f" ; {marker}" if marker else ""
    vcs = item.get("vcs", {})
    archive = item.get("archive", {})
    if "directory" in item or "path" in vcs or "path" in archive:
        raise InvalidRequest(
            f"{file.name} has the local package {name!r}, which is not sent",
            remedy=f"build it and send it: --wheel dist/{name}-….whl (in Python: wheels=[…])",
        )
    # Other tools write markers that ask which extras are wanted.
    if re.search(r"\b(extras|dependency_groups)\b", marker):
        raise InvalidRequest(
            f"{file.name} has packages for some extras or groups only: {name} ; {marker}",
            remedy="export a lock for what the job needs, without extras and groups",
        )
    if vcs:
        below = f"#subdirectory={vcs['subdirectory']}" if "subdirectory" in vcs else ""
        return f"{name} @ {vcs['type']}+{vcs['url']}@{vcs['commit-id']}{below}{condition}"
    files = [archive] if archive else [*item.get("wheels", ()), *filter(None, [item.get("sdist")])]
    hashes = {
        f"{kind}:{value}"
        for each in files
        for kind, value in each["hashes"].items()
        if kind in SHA2
    }
    if not hashes:
        raise InvalidRequest(f"{file.name} has no hash for {name!r}; lock again")
    exact = f"{name} @ {archive['url']}" if archive else f"{name}=={item['version']}"
    return exact + condition + "".join(f"{HASH}{each}" for each in sorted(hashes))

"""Options in files: ``raysm.toml`` of a project with its profiles, and whole requests.

The file is given, or found in the working folder or above it. Errors name the line of a value. Passwords, tokens and
keys do not belong in these files: they are beside the source, and all who may describe a job can read them.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from raysm.client.options import SubmitKeywords
from raysm.client.settings import Key, Layer, Settings, check_values, nested, schema
from raysm.errors import InvalidRequest

PROJECT_FILE = "raysm.toml"
PROFILES = "profile"

SCRIPT_PATHS = ("source_dir", "script")
"""Options of a workload that are paths: the script is relative to the source folder, if that is given."""


def find_project_file(start: Path, home: Path) -> Path | None:
    """Return the nearest ``raysm.toml`` in ``start`` or above it, up to the root of a repository or the home folder."""
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
        # Checked last, because these two folders may have a file themselves.
        if folder == home or (folder / ".git").exists():
            return None
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """The content of a project file, checked with all its profiles."""

    path: Path
    layers: Mapping[str | None, Layer]
    """The options that always apply (None), and each profile's."""

    @classmethod
    def read(cls, path: Path) -> "Project":
        file = _File.read(path)
        profiles = file.data.get(PROFILES, {})
        for name, tables in profiles.items() if isinstance(profiles, dict) else [(PROFILES, None)]:
            if not isinstance(tables, dict):
                raise InvalidRequest(f"{file.origin((PROFILES, name))}: write a profile as [{PROFILES}.NAME.cluster]")
        if "workload" in file.data:
            raise InvalidRequest(
                f"{file.origin(('workload',))}: a project file has no workload; put it into a file for --request"
            )
        base = {name: item for name, item in file.data.items() if name != PROFILES}
        layers: dict[str | None, Layer] = {None: file.layer(base, (), workload=False)}
        for name, tables in profiles.items():
            layers[name] = file.layer(tables, (PROFILES, name), workload=False)
        return cls(path=path, layers=layers)

    def chosen(self, profile: str | None = None) -> list[Layer]:
        """Return the layers that apply with a profile, the weaker first."""
        if profile is None:
            return [self.layers[None]]
        if profile not in self.layers:
            names = ", ".join(name for name in self.layers if name is not None) or "none"
            raise InvalidRequest(f"{_shown(self.path)} has no profile {profile!r}; it has {names}")
        return [self.layers[None], self.layers[profile]]


def read_request(path: Path) -> Layer:
    """Read a whole request, as ``raysm run … --dry-run --json`` prints one."""
    file = _File.read(path)
    return file.layer(file.data, (), workload=True)


def load_options(path: str | Path | None = None, *, profile: str | None = None) -> SubmitKeywords:
    """Return the options of a project file, for ``raysm.submit(workload, **raysm.load_options())``.

    ``raysm.submit`` itself reads no file, so that a program does the same in every folder.

    Args:
        path: The file; None is the nearest ``raysm.toml`` in the working folder or above it.
        profile: One of the file's profiles.

    Raises:
        InvalidRequest: There is no such file or profile, or it is not valid.
    """
    file = find_project_file(Path.cwd(), Path.home()) if path is None else Path(path)
    if file is None:
        raise InvalidRequest(f"there is no {PROJECT_FILE} in {Path.cwd()} or above it; give its path")
    settings = Settings(Project.read(file).chosen(profile))
    return cast(SubmitKeywords, settings.options() | {"on": settings.target()})


def absolute(data: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return a request's tables with all paths absolute; those of the workload are not checked yet."""
    tables = dict(data)
    if "inputs" in data:
        tables["inputs"] = {name: _located(item, base) for name, item in data["inputs"].items()}
    if "wheels" in data:
        tables["wheels"] = [_joined(item, base) for item in data["wheels"]]
    if "workload" in data:
        name = next((name for name in SCRIPT_PATHS if data["workload"].get(name) is not None), None)
        paths = {} if name is None else {name: _joined(data["workload"][name], base)}
        tables["workload"] = data["workload"] | paths
    if "home" in data.get("local", {}):
        tables["local"] = data["local"] | {"home": _joined(data["local"]["home"], base)}
    return tables


def _located(item: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    # URIs and references to other jobs' outputs are not paths.
    is_path = "://" not in item.get("uri", "://") and not item["uri"].startswith("job:")
    return {**item, "uri": _joined(item["uri"], base)} if is_path else item


def _joined(item: Any, base: Path) -> Any:
    # The workload's values are not checked yet.
    return str(base / Path(item).expanduser()) if isinstance(item, str) else item


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    path: Path
    text: str
    data: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_File":
        parse, language = (json.loads, "JSON") if path.suffix == ".json" else (tomllib.loads, "TOML")
        try:
            text = path.read_text(encoding="utf-8-sig")
            data = parse(text)
        except OSError as error:
            raise InvalidRequest(f"{_shown(path)} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # its message has the position
            raise InvalidRequest(f"{_shown(path)} is not {language} that can be read: {error}") from error
        if not isinstance(data, dict):
            raise InvalidRequest(f"{_shown(path)} holds no options: expected tables, got {data!r:.80}")
        return cls(path=path, text=text, data=data)

    def layer(self, data: Mapping[str, Any], at: Key, *, workload: bool) -> Layer:
        """Return the options of one part of the file, which begins at ``at``, with or without a workload."""

        def origin(key: Key) -> str:
            return self.origin((*at, *key))

        hints = schema(workload=workload)
        # Checked first, because messages show values as they are in the file.
        tables = nested(check_values(data, hints, origin))
        located = absolute(tables, self.path.absolute().parent)
        return Layer(values=check_values(located, hints, origin), origin=origin)

    def origin(self, key: Key) -> str:
        """Return file and line of a value; the file alone for JSON, which programs write."""
        line = None if self.path.suffix == ".json" else _line_of(self.text, key)
        return _shown(self.path) if line is None else f"{_shown(self.path)}:{line}"


def _line_of(text: str, key: Key) -> int | None:
    """Return the number of the line on which the value at ``key`` begins.

    tomllib has no line numbers, so this parses the first n lines for each n: a statement begins after the last n whose
    lines parse without it. A scanner would have to know strings, arrays and inline tables.
    """
    lines = text.splitlines(keepends=True)
    begin = 0
    for end in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if _holds(data, key):
            return begin + 1
        begin = end
    return None


def _holds(data: Any, key: Key) -> bool:
    for name in key:
        if not isinstance(data, dict):
            return True  # train = "s3://…" stands for a table
        if name not in data:
            return False
        data = data[name]
    return True


def _shown(path: Path) -> str:
    """Return a path relative to the working folder, if it is below it."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)

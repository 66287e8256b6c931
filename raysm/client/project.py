"""Options in files: ``raysm.toml`` of a project with its profiles, and whole requests.

The file is given, or found in the working folder or above it. Passwords, tokens and keys do not belong in these files: they are beside the source, and all who may describe a job can read them.
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
        data, shown = _parse(path), _shown(path)
        profiles = data.pop(PROFILES, {})
        if not isinstance(profiles, dict) or not all(isinstance(tables, dict) for tables in profiles.values()):
            raise InvalidRequest(f"{shown}: write a profile as [{PROFILES}.NAME.cluster]")
        if "workload" in data:
            raise InvalidRequest(f"{shown}: a project file has no workload; put it into a file for --request")
        layers: dict[str | None, Layer] = {None: _layer(path, data, shown, workload=False)}
        for name, tables in profiles.items():
            layers[name] = _layer(path, tables, f"{shown} [{PROFILES}.{name}]", workload=False)
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
    return _layer(path, _parse(path), _shown(path), workload=True)


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


def _parse(path: Path) -> dict[str, Any]:
    parse, language = (json.loads, "JSON") if path.suffix == ".json" else (tomllib.loads, "TOML")
    try:
        data = parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidRequest(f"{_shown(path)} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # its message has the position
        raise InvalidRequest(f"{_shown(path)} is not {language} that can be read: {error}") from error
    if not isinstance(data, dict):
        raise InvalidRequest(f"{_shown(path)} holds no options: expected tables, got {data!r:.80}")
    return data


def _layer(path: Path, data: Mapping[str, Any], source: str, *, workload: bool) -> Layer:
    def origin(key: Key) -> str:
        return source

    hints = schema(workload=workload)
    # Checked first, because messages show values as they are in the file.
    located = absolute(nested(check_values(data, hints, origin)), path.absolute().parent)
    return Layer(values=check_values(located, hints, origin), origin=origin)


def _shown(path: Path) -> str:
    """Return a path relative to the working folder, if it is below it."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)

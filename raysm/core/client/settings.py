"""Options from the command line, ``raysm.toml`` and its profiles, and whole requests in files.

Layers are plain values, the weakest first, and each value knows its source. Tables are merged key
by key, lists are replaced. Passwords, tokens and keys do not belong in these files: all who may
describe a job can read them.
"""

import dataclasses
import json
import shlex
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from raysm.core.client.options import SubmitKeywords
from raysm.core.client.source.lock import (
    is_requirements_file,
    read_requirements,
    wheel_requirement,
)
from raysm.core.protocol.trust import find_distrust
from raysm.core.request import JobRequest, Local, Target, Workload
from raysm.core.request.codec import from_json, hints_of
from raysm.core.request.job import hyperparameter_text
from raysm.errors import InvalidRequest, did_you_mean

Key: TypeAlias = tuple[str, ...]
"""The path to a value: ``("cluster", "count")``."""

TARGETS: Mapping[str, type[Target]] = {
    target.kind: target
    for target in sorted(typing.get_args(Target), key=lambda target: target is not Local)
}
"""The targets, each with a table of its own; the first one is the default."""

NEEDED = {"role": "the ARN of the role that the job runs as"}
OWN = {
    "wheels": tuple[str, ...],
    "if_done": Literal["run", "skip"],
    "resume": bool,
    "regions": tuple[str, ...],
    "region_wait_s": float,
}

GROUPS = ("cluster", "groups")
UNIFORM = (("cluster", "instance_type"), ("cluster", "count"), ("cluster", "alternatives"))
"""A cluster has either groups, or types and a count: a later layer with one of them drops the
other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    values: Mapping[Key, Any]
    origin: Callable[[Key], str]


def schema(*, workload: bool) -> dict[str, Any]:
    hints = dict(hints_of(JobRequest))
    if not workload:
        del hints["workload"]
    return {"on": Literal[tuple(TARGETS)], **TARGETS, **hints, **OWN}


def hint_of(key: Key) -> Any:
    hint: Any = schema(workload=True)
    for name in key:
        hint = _hints_in(hint, name).get(name)
    return hint


def check_values(
    data: Mapping[str, Any], hints: Mapping[str, Any], origin: Callable[[Key], str]
) -> dict[Key, Any]:
    """Return the values of nested tables by their keys.

    An unknown key or a value of another type is refused.
    """
    return dict(_leaves(data, hints, (), origin))


def _leaves(
    item: Any, hint: Any, key: Key, origin: Callable[[Key], str]
) -> Iterator[tuple[Key, Any]]:
    item = _in_full(item, key)
    path = ".".join(key)
    is_open = hint is Workload or typing.get_origin(hint) is Mapping
    if not (is_open or isinstance(hint, Mapping) or dataclasses.is_dataclass(hint)):
        # Only checked: a layer keeps JSON, which can be merged and printed.
        from_json(hint, item, f"{origin(key)}: {path}")
        yield key, item
        return
    if not isinstance(item, Mapping):
        raise InvalidRequest(f"{origin(key)}: {path} is a table of options, got {item!r}")
    for name, inner in item.items():
        names = _hints_in(hint, name)
        if name not in names:
            raise InvalidRequest(
                f"{origin((*key, name))}: there is no option {_with_nearest((*key, name), names)}"
            )
        yield from _leaves(inner, names[name], (*key, name), origin)


def _in_full(item: Any, key: Key) -> Any:
    if isinstance(item, str) and key[:1] == ("inputs",) and len(key) == 2:
        return {"uri": item}
    if key[:1] == ("hyperparameters",) and len(key) == 2:
        return hyperparameter_text(key[1], item)
    return item


def _hints_in(hint: Any, name: str) -> Mapping[str, Any]:
    """Return the types of a table's values by name; if users choose names, that of ``name``."""
    if isinstance(hint, Mapping):
        return hint
    if hint is Workload:  # checked as a whole, once its kind is known
        return {name: Any}
    return (
        {name: typing.get_args(hint)[-1]} if typing.get_origin(hint) is Mapping else hints_of(hint)
    )


def _with_nearest(key: Key, names: Iterable[str]) -> str:
    table = "".join(f"{part}." for part in key[:-1])
    hint = did_you_mean(key[-1], names, prefix=table) or f"; there are {', '.join(names)}"
    return f"{table}{key[-1]}{hint}"


def nested(values: Mapping[Key, Any]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for key, value in values.items():
        table = tables
        for name in key[:-1]:
            table = table.setdefault(name, {})
        table[key[-1]] = value
    return tables


class Settings:
    def __init__(self, layers: Iterable[Layer]) -> None:
        self.values: dict[Key, Any] = {}
        self._origins: dict[Key, Callable[[Key], str]] = {}
        for layer in layers:
            self._merge(layer)

    def _merge(self, layer: Layer) -> None:
        replaced: list[Key] = []
        # The key alone does not count: a printed request has empty groups beside a type and a
        # count.
        if layer.values.get(GROUPS):
            replaced += UNIFORM
        elif any(key in layer.values for key in UNIFORM):
            # ``head`` names one of the groups.
            replaced += [GROUPS, ("cluster", "head")]
        kind = ("workload", "kind")
        if kind in layer.values and self.values.get(kind) not in (None, layer.values[kind]):
            # Another workload, not another option.
            replaced += [key for key in self.values if key[0] == "workload"]
        for key in replaced:
            self.values.pop(key, None)
        self.values |= layer.values
        self._origins |= dict.fromkeys(layer.values, layer.origin)

    def __contains__(self, key: Key) -> bool:
        """Return True if a layer has a value at ``key``, or below it."""
        return any(chosen[: len(key)] == key for chosen in self.values)

    def origin(self, key: Key) -> str:
        return self._origins[key](key) if key in self.values else "default"

    def table(self, name: str) -> dict[str, Any]:
        values = nested(self.values).get(name)
        return values if isinstance(values, dict) else {}

    @property
    def on(self) -> type[Target]:
        return TARGETS[self.values.get(("on",), next(iter(TARGETS)))]

    def target(self, **defaults: Any) -> Target:
        kind = self.on
        fields = dataclasses.fields(kind)
        names = {field.name for field in fields}
        chosen = {name: value for name, value in defaults.items() if name in names} | self.table(
            kind.kind
        )
        for field in fields:
            if field.default is dataclasses.MISSING and field.name not in chosen:
                raise InvalidRequest(
                    f"--on {kind.kind} needs --{field.name}, {NEEDED[field.name]}; "
                    f"or write {field.name} under [{kind.kind}] in raysm.toml"
                )
        return from_json(kind, chosen, kind.kind)

    def workload(self) -> Workload:
        chosen = self.table("workload")
        name = chosen.pop("kind", None)
        kind: Callable[..., Workload] = Workload.named(
            name, f"{self.origin(('workload', 'kind'))}: workload.kind"
        )
        fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
        for option in chosen:
            if option not in fields:
                key = ("workload", option)
                raise InvalidRequest(
                    f"{self.origin(key)}: a {name} has no option {_with_nearest(key, fields)}"
                )
        for option, field in fields.items():
            if (
                option not in chosen
                and field.default is dataclasses.MISSING is field.default_factory
            ):
                raise InvalidRequest(
                    f"the {name} has no {option}; give it in the request's [workload]"
                )
        # Without the codec, because the class has better messages about its values.
        return kind(
            **{key: tuple(item) if isinstance(item, list) else item for key, item in chosen.items()}
        )

    def options(self) -> dict[str, Any]:
        hints = {**hints_of(JobRequest), **OWN}
        chosen = nested(self.values)
        if "cluster" in chosen:
            # The target's default count applies if the cluster has other options, but neither
            # groups nor a count.
            target = self.table(self.on.kind)
            if "instances" in target and not any(
                key in self.values for key in (GROUPS, ("cluster", "count"))
            ):
                chosen["cluster"] = {"count": target["instances"]} | chosen["cluster"]
        names = [name for name in chosen if name not in (*TARGETS, "on", "workload")]
        return {name: self._typed(name, hints[name], chosen[name]) for name in names}

    def _typed(self, name: str, hint: Any, item: Any) -> Any:
        try:
            return from_json(hint, item, name)
        except InvalidRequest as error:  # each value is valid by itself, but not together
            keys = [key for key in self.values if key[0] == name]
            # The message names the values that do not fit together.
            origins = dict.fromkeys(
                map(self.origin, [key for key in keys if str(key[-1]) in str(error)] or keys)
            )
            raise InvalidRequest(f"{error} (from {', '.join(origins)})") from None


PROJECT_FILE = "raysm.toml"
PROFILES = "profile"

SCRIPT_PATHS = ("source_dir", "script")
"""Options of a workload that are paths: the script is relative to the source folder, if that is
given."""


def find_project_file(start: Path, home: Path) -> Path | None:
    """Return the nearest ``raysm.toml`` in ``start`` or above it.

    The search ends at the root of a repository or the home folder.

    Raises:
        InvalidRequest: Another user may have written it: its options can run any code and send data
            anywhere.
    """
    for folder in (start, *start.parents):
        file = folder / PROJECT_FILE
        if file.is_file():
            distrust = find_distrust(file)
            if distrust is not None:
                raise InvalidRequest(
                    f"{file} is not used, because {distrust.reason}",
                    remedy=f"{distrust.command and f'run {distrust.command}, or '}read it, "
                    f"and then name it: --project-file {shlex.quote(str(file))} (in Python: "
                    f"raysm.load_options({str(file)!r}))",
                )
            return file
        # Checked last, because these two folders may have a file themselves.
        if folder == home or (folder / ".git").exists():
            return None
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    path: Path
    layers: Mapping[str | None, Layer]
    """The options that always apply (None), and each profile's."""

    @classmethod
    def read(cls, path: Path) -> "Project":
        data = _parse(path)
        shown = _shown(path)
        profiles = data.pop(PROFILES, {})
        if not isinstance(profiles, dict) or not all(
            isinstance(tables, dict) for tables in profiles.values()
        ):
            raise InvalidRequest(f"{shown}: write a profile as [{PROFILES}.NAME.cluster]")
        if "workload" in data:
            raise InvalidRequest(
                f"{shown}: a project file has no workload; put it into a file for --request"
            )
        layers: dict[str | None, Layer] = {None: _layer(path, data, shown, workload=False)}
        for name, tables in profiles.items():
            layers[name] = _layer(path, tables, f"{shown} [{PROFILES}.{name}]", workload=False)
        return cls(path=path, layers=layers)

    def chosen(self, profile: str | None = None) -> list[Layer]:
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
        raise InvalidRequest(
            f"there is no {PROJECT_FILE} in {Path.cwd()} or above it; give its path"
        )
    settings = Settings(Project.read(file).chosen(profile))
    return cast(SubmitKeywords, packaged_options(settings) | {"on": settings.target()})


def packaged_options(settings: Settings) -> dict[str, Any]:
    """Return the options of a job, with packages instead of the files that name them.

    The files are requirement files and wheels.

    A file or a command line names each package once. In ``raysm.submit`` wheels are where pip looks
    first.
    """
    options = settings.options()
    if options.get("wheels") or options.get("requirements"):
        named = options.get("requirements", ())
        listed = [
            line
            for name in named
            for line in (read_requirements(Path(name)) if is_requirements_file(name) else [name])
        ]
        options["requirements"] = list(
            dict.fromkeys([*listed, *map(_requirement, options.get("wheels", ()))])
        )
    return options


def _requirement(wheel: str) -> str:
    """Return a wheel's requirement NAME==VERSION: pip installs only wheels that one names."""
    requirement = wheel_requirement(Path(wheel).name)
    if not requirement:
        raise InvalidRequest(
            f"--wheel takes a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl, got {wheel!r}"
        )
    return requirement


def absolute(data: Mapping[str, Any], base: Path) -> dict[str, Any]:
    tables = dict(data)
    if "inputs" in data:
        tables["inputs"] = {name: _located(item, base) for name, item in data["inputs"].items()}
    if "wheels" in data:
        tables["wheels"] = [_joined(item, base) for item in data["wheels"]]
    if "requirements" in data:
        tables["requirements"] = _files_joined(data["requirements"], base)
    if "workload" in data:
        # A command is found by the instance's PATH.
        names = SCRIPT_PATHS[:1] if data["workload"].get("command") else SCRIPT_PATHS
        name = next((name for name in names if data["workload"].get(name) is not None), None)
        paths = {} if name is None else {name: _joined(data["workload"][name], base)}
        tables["workload"] = data["workload"] | paths
    if "home" in data.get("local", {}):
        tables["local"] = data["local"] | {"home": _joined(data["local"]["home"], base)}
    return tables


def _located(item: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    # URIs and references to other jobs' outputs are not paths.
    is_path = "://" not in item.get("uri", "://") and not item["uri"].startswith("job:")
    return {**item, "uri": _joined(item["uri"], base)} if is_path else item


def _files_joined(requirements: Any, base: Path) -> Any:
    if not isinstance(requirements, list | tuple):
        return requirements
    return [
        _joined(item, base) if is_requirements_file(str(item)) else item for item in requirements
    ]


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
        raise InvalidRequest(
            f"{_shown(path)} is not {language} that can be read: {error}"
        ) from error
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
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)

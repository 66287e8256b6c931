"""The code of a job: its script or pickled function, and the user's modules that travel with it."""

import dis
import functools
import importlib.machinery
import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

from raysm.contract.source import Source, imports_its_package_late, late_modules, source_of, source_of_modules
from raysm.errors import InvalidRequest
from raysm.request import Workload
from raysm.request.workload import KINDS, check_kind, require_workload

__all__ = [
    "Culprit",
    "Package",
    "Wrapped",
    "culprit_of_call",
    "late_source",
    "own_modules",
    "package_of",
    "source_of_kind",
]


def own_modules(fn: Callable[..., Any]) -> Iterator[ModuleType]:
    """Yield the imported modules that lie beside the function's own and belong to no installed package."""
    home = _home(fn)
    if home is not None:
        yield from _imported_from(home).modules()


class _Imported:
    """The imported modules that lie in one folder, as far as they were looked at.

    A program has thousands, and a session asks with each call: to resolve the path of each took 50 ms.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._others: dict[str, ModuleType] = {}
        self._own: dict[str, ModuleType] = {}

    def modules(self) -> list[ModuleType]:
        # A copy: to ask a lazy module for its file may import others.
        for name, module in list(sys.modules.items()):
            # By identity: who takes a module out of sys.modules may import another one of that name.
            if self._others.get(name) is not module and self._own.get(name) is not module:
                self._look_at(name, module)
        return [module for name, module in self._own.items() if sys.modules.get(name) is module]

    def _look_at(self, name: str, module: ModuleType) -> None:
        self._own.pop(name, None)
        root = _root(module)
        # raysm itself travels with every payload; what __main__ defines, cloudpickle takes by value anyway.
        is_everywhere = name == "__main__" or name.partition(".")[0] == "raysm"
        if not is_everywhere and root is not None and root.is_relative_to(self._home) and not _is_installed(root):
            self._own[name] = module
        elif is_everywhere or root is not None or _has_no_source(module):  # one without a file may yet get it
            self._others[name] = module


@functools.cache
def _imported_from(home: Path) -> _Imported:
    return _Imported(home)


def late_source(fn: Callable[..., Any]) -> Source | None:
    """Return the modules beside the function's own that are imported inside functions; None where there are none.

    Raises:
        InvalidRequest: They are too large to be code.
    """
    home = _home(fn)
    if home is None:
        return None
    modules = [module for module in (_module_of(fn), *own_modules(fn)) if module is not None]
    files = {path: module for module in modules if (path := _source_file(module)) is not None}
    packages = {module.__name__.partition(".")[0] for path, module in files.items() if imports_its_package_late(path)}
    source = source_of_modules(late_modules(files) | packages | set(_late_in_code(fn)), home)
    return source if source.files else None


def source_of_kind(kind: type[Workload]) -> Source | None:
    """Return the modules that define a kind of workload of the user's, and its runner, with what they import there.

    None for raysm's own kinds, which travel with every payload, and for those that others installed: requirements and
    images bring them.

    Raises:
        InvalidRequest: They are too large to be code.
    """
    home = None if kind.kind in KINDS else _home(kind)
    if home is None:
        return None
    names = {path.partition(".")[0].partition(":")[0] for path in (kind.kind, kind.runner)}
    return source_of_modules(names, home)


def _late_in_code(fn: Callable[..., Any]) -> Iterator[str]:
    """Yield what the functions of a notebook import: there is no file that could be read."""
    if _source_file(_module_of(fn)) is not None:
        return
    values = list(getattr(inspect.unwrap(fn), "__globals__", {}).values())
    for function in (inspect.unwrap(item) for item in values if callable(item)):
        if isinstance(function, FunctionType) and function.__module__ == "__main__":
            yield from _imported_in(function.__code__)


def _imported_in(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            yield str(instruction.argval).partition(".")[0]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported_in(constant)


def _module_of(fn: Callable[..., Any]) -> ModuleType | None:
    return sys.modules.get(getattr(inspect.unwrap(fn), "__module__", None) or "")


def _home(fn: Callable[..., Any]) -> Path | None:
    """Return the folder that the function's module is imported from; None where others installed it."""
    module = _module_of(fn)
    if module is None:
        return None
    # A notebook, or a Python that is typed into, imports from its working folder.
    is_typed = module.__name__ == "__main__" and getattr(module, "__file__", None) is None
    home = Path.cwd() if is_typed else _root(module)
    return None if home is None or _is_installed(home) else home


def _source_file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) and file.endswith(tuple(importlib.machinery.SOURCE_SUFFIXES)) else None


def _has_no_source(module: ModuleType) -> bool:
    """Whether it never will have: it is built in, or compiled. A hundred of each program's modules are."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return origin in ("built-in", "frozen") or isinstance(getattr(module, "__file__", None), str)


def _root(module: ModuleType) -> Path | None:
    """Return the folder from which the module's top-level package is imported."""
    file = _source_file(module)
    if file is None:
        return None
    depth = module.__name__.count(".") + (1 if file.name == "__init__.py" else 0)
    parents = file.resolve().parents
    return parents[depth] if module.__name__ != "__main__" and depth < len(parents) else parents[0]


# Once, since it is asked for each module that is imported.
@functools.cache
def _installed() -> tuple[Path, ...]:
    places = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(place).resolve() for place in places)


def _is_installed(folder: Path) -> bool:
    # Debian's Pythons have dist-packages instead.
    in_site = any(part in ("site-packages", "dist-packages") for part in folder.parts)
    return in_site or folder in _installed()


DEEPEST = 12
"""Levels that are looked at; what lies deeper is named by the level above it."""

WIDEST = 2_000
"""Parts of one value that are looked at: each of them is pickled."""

Culprit = tuple[str, Any]
"""The path, and what lies there."""


def culprit_of_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    pickled: Callable[[Any], object],
    is_whole: Callable[[Any], bool] = lambda value: False,
) -> Culprit | None:
    """Return the innermost part of a call that cannot be pickled; None where each part by itself can.

    Args:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its named arguments.
        pickled: Pickles one value, or raises.
        is_whole: Whether a value is named itself, and not a part of it that only its author knows.
    """
    parts = [(f"args[{number}]", value) for number, value in enumerate(args)]
    parts += [(name, value) for name, value in kwargs.items()]
    name = getattr(fn, "__name__", "the function")

    def pieces(path: str, value: Any) -> Iterator[Culprit]:
        return iter(()) if is_whole(value) else _parts_of(path, value)

    return _first([*parts, (name, fn)], pickled, pieces, 0, set())


def _first(
    parts: "list[Culprit] | Iterator[Culprit]",
    pickled: Callable[[Any], object],
    pieces: Callable[[str, Any], Iterator[Culprit]],
    depth: int,
    seen: set[int],
) -> Culprit | None:
    for number, (path, value) in enumerate(parts):
        if number >= WIDEST:
            return None
        if id(value) in seen or _is_well(value, pickled):
            continue
        # A value may hold itself.
        seen.add(id(value))
        inner = _first(pieces(path, value), pickled, pieces, depth + 1, seen) if depth < DEEPEST else None
        return inner or (path, value)
    return None


def _is_well(value: object, pickled: Callable[[Any], object]) -> bool:
    try:
        pickled(value)
    except Exception:  # its own code
        return False
    return True


def _parts_of(path: str, value: Any) -> Iterator[Culprit]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{path}[{number}]", item) for number, item in enumerate(value))
    elif inspect.ismethod(value):
        yield f"{path}.__self__", value.__self__
    elif inspect.isfunction(value):
        yield from _parts_of_function(path, value)
    else:
        yield from ((f"{path}.{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def _parts_of_function(path: str, function: Any) -> Iterator[Culprit]:
    variables = inspect.getclosurevars(function)
    for name, item in {**variables.nonlocals, **variables.globals}.items():
        yield f"{name} (used by {path})", item
    for name, item in (function.__kwdefaults__ or {}).items():
        yield f"{name} (a default of {path})", item
    for number, item in enumerate(function.__defaults__ or ()):
        yield f"default {number} of {path}", item


@dataclass(frozen=True, kw_only=True)
class Package:
    """What travels."""

    workload: Workload
    """What is asked for."""
    title: str
    """What a job is named after where the user gives no name."""
    source: Source | None
    """Files of the user's."""
    pickled: bytes | None
    """The pickle that goes with the workload."""


@runtime_checkable
class Wrapped(Protocol):
    """What is submitted where the workload's code has to be pickled first."""

    def workload(self) -> Workload:
        """Return what stands for it in the request."""

    def pickled(self) -> bytes | None:
        """Return the pickle that goes with it; None where nothing is pickled."""

    def source(self) -> Source | None:
        """Return the files that go with it."""

    def title(self) -> str:
        """Return what a job is named after where the user gives no name."""


@runtime_checkable
class SubmitsItself(Protocol):
    """What is not submitted by others: a function decorated with ``raysm.remote``."""

    # Known by its methods, not its class: that one calls submit, which calls this module.

    def submit(self, *args: Any, **kwargs: Any) -> object:
        """Submit it."""

    def options(self, **options: Any) -> object:
        """Return the same with other options."""


def package_of(workload: object) -> Package:
    """Pickle and find what travels with a workload; a package is what it was made of, for many jobs of one pickle.

    Raises:
        InvalidRequest: It is no workload, or something of it cannot travel.
    """
    if isinstance(workload, Package):
        return workload
    if isinstance(workload, SubmitsItself):
        raise InvalidRequest("a function decorated with raysm.remote is submitted by its own submit(…)")
    # The class itself, Function instead of Function(fn), has these methods too.
    if isinstance(workload, Wrapped) and not isinstance(workload, type):
        kind = workload.workload()
        check_kind(type(kind))
        source, pickled, title = workload.source(), workload.pickled(), workload.title()
    else:
        kind = require_workload(workload)
        script = kind.entry_script
        source, pickled, title = None if script is None else source_of(script), None, kind.title
    return Package(workload=kind, title=title, source=_together(source, source_of_kind(type(kind))), pickled=pickled)


def _together(source: Source | None, of_kind: Source | None) -> Source | None:
    """Return the files of the user's code, and of the module that defines its kind, as one source."""
    if source is None or of_kind is None:
        return source or of_kind
    for name, path in of_kind.files.items():
        other = source.files.get(name, path)
        # A script may import the module of its kind: then it is one file, found twice.
        if other.resolve() != path.resolve():
            raise InvalidRequest(
                f"two files would travel as {name!r}: {other}, of the script, and {path}, of its kind of workload; "
                "rename one of them"
            )
    return replace(
        source,
        files={**of_kind.files, **source.files},
        left_behind={**of_kind.left_behind, **source.left_behind},
    )

"""The code of a job: its script or pickled function, and the user's modules that travel with it."""

import dis
import functools
import importlib.machinery
import inspect
import operator
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

from raysm.core.protocol.source import (
    Source,
    imports_its_package_late,
    late_modules,
    source_of,
    source_of_modules,
)
from raysm.core.request import Workload
from raysm.core.request.workload import built_in_kind, check_kind, require_workload
from raysm.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Package:
    workload: Workload
    title: str
    source: Source | None
    pickled: bytes | None


@runtime_checkable
class Wrapped(Protocol):
    def workload(self) -> Workload: ...
    def pickled(self) -> bytes | None: ...
    def source(self) -> Source | None: ...
    def title(self) -> str: ...


def package_of(workload: object) -> Package:
    """Pickle a workload and find its files.

    A package is returned as it is, for many jobs with one pickle.
    """
    if isinstance(workload, Package):
        return workload
    if callable(getattr(workload, "submit", None)):
        raise InvalidRequest(
            "a function decorated with raysm.remote is submitted by its own submit(…)"
        )
    # A class, Function instead of Function(fn), has these methods too.
    if isinstance(workload, Wrapped) and not isinstance(workload, type):
        kind = workload.workload()
        check_kind(type(kind))
        source = workload.source()
        pickled = workload.pickled()
        title = workload.title()
    else:
        kind = require_workload(workload)
        script = kind.entry_script
        source = None if script is None else source_of(script)
        pickled = None
        title = kind.title
    return Package(
        workload=kind,
        title=title,
        source=_merge(source, source_of_kind(type(kind))),
        pickled=pickled,
    )


def _merge(source: Source | None, of_kind: Source | None) -> Source | None:
    if source is None or of_kind is None:
        return source or of_kind
    for name, path in of_kind.files.items():
        other = source.files.get(name, path)
        # A script may import the module of its kind: then both have the same file.
        if other.resolve() != path.resolve():
            raise InvalidRequest(
                f"two files would travel as {name!r}: "
                f"the script's {other} and its kind's {path}; rename one of them"
            )
    return replace(
        source,
        files={**of_kind.files, **source.files},
        left_behind={**of_kind.left_behind, **source.left_behind},
    )


def late_source(fn: Callable[..., Any]) -> Source | None:
    """Return the modules in the function's folder that functions import when they run.

    None means that there are none.
    """
    home = _home(fn)
    if home is None:
        return None
    modules = [module for module in (_module_of(fn), *own_modules(fn)) if module is not None]
    files = {path: module for module in modules if (path := _source_file(module)) is not None}
    packages = {
        module.__name__.partition(".")[0]
        for path, module in files.items()
        if imports_its_package_late(path)
    }
    source = source_of_modules(late_modules(files) | packages | set(_late_in_code(fn)), home)
    return source if source.files else None


def source_of_kind(kind: type[Workload]) -> Source | None:
    """Return the modules of a user's kind of workload and its runner.

    They come with the modules that they import from the same folder.

    Returns None for raysm's own kinds, which travel with every payload, and for kinds of installed
    packages, which come with requirements or the image.
    """
    home = None if built_in_kind(kind.kind) is kind else _home(kind)
    if home is None:
        return None
    names = {path.partition(".")[0].partition(":")[0] for path in (kind.kind, kind.runner)}
    return source_of_modules(names, home)


def own_modules(fn: Callable[..., Any]) -> Iterator[ModuleType]:
    """Yield the user's modules beside that of ``fn``, or else those beside the program's.

    The latter are used if ``fn`` is not in one of the user's modules.
    """
    main = sys.modules.get("__main__")
    home = _home(fn) or (None if main is None else _home(main))
    if home is not None:
        yield from _imported_from(home).modules()


class _Imported:
    """A cache of the user's modules of one folder.

    A session needs them at each call, and resolving all took 50 ms.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._others: dict[str, ModuleType] = {}
        self._own: dict[str, ModuleType] = {}
        self._unsure: dict[str, ModuleType] = {}
        self._names: list[str] = []
        self._modules: list[ModuleType] = []

    def modules(self) -> list[ModuleType]:
        # Copies, because asking a lazy module for its file may import others.
        names = list(sys.modules)
        modules = list(sys.modules.values())
        # By identity, because another module of that name may have been imported.
        if names != self._names or not all(map(operator.is_, modules, self._modules)):
            for name, module in zip(names, modules, strict=True):
                if self._others.get(name) is not module and self._own.get(name) is not module:
                    self._unsure[name] = module
            self._names = names
            self._modules = modules
        # A lazy module gets its file when it is used.
        for name, module in list(self._unsure.items()):
            self._sort(name, module)
        return [module for name, module in self._own.items() if sys.modules.get(name) is module]

    def _sort(self, name: str, module: ModuleType) -> None:
        self._own.pop(name, None)
        self._unsure.pop(name, None)
        root = _root(module)
        # raysm itself travels with every payload; cloudpickle takes what __main__ defines by value
        # anyway.
        is_everywhere = name == "__main__" or name.partition(".")[0] == "raysm"
        if (
            not is_everywhere
            and root is not None
            and root.is_relative_to(self._home)
            and not _is_installed(root)
        ):
            self._own[name] = module
        elif is_everywhere or root is not None or _has_no_source(module):
            self._others[name] = module
        else:
            self._unsure[name] = module


_imported_from = functools.cache(_Imported)


def _late_in_code(fn: Callable[..., Any]) -> Iterator[str]:
    """Yield the modules that a notebook's functions import: a notebook has no file to read."""
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


def _module_of(fn: Callable[..., Any] | ModuleType) -> ModuleType | None:
    if isinstance(fn, ModuleType):
        return fn
    return sys.modules.get(getattr(inspect.unwrap(fn), "__module__", None) or "")


def _home(fn: Callable[..., Any] | ModuleType) -> Path | None:
    module = _module_of(fn)
    if module is None:
        return None
    # A notebook, or an interactive Python, imports from its working folder.
    is_typed = module.__name__ == "__main__" and getattr(module, "__file__", None) is None
    home = Path.cwd() if is_typed else _root(module)
    return None if home is None or _is_installed(home) else home


def _source_file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return _path_of_source(file) if isinstance(file, str) else None


@functools.cache
def _path_of_source(file: str) -> Path | None:
    return Path(file) if file.endswith(tuple(importlib.machinery.SOURCE_SUFFIXES)) else None


def _has_no_source(module: ModuleType) -> bool:
    """Return True if a module is built in, compiled, or made by a program.

    A hundred modules of any program are.
    """
    spec = getattr(module, "__spec__", None)
    return (
        spec is None
        or spec.origin in ("built-in", "frozen")
        or isinstance(getattr(module, "__file__", None), str)
    )


def _root(module: ModuleType) -> Path | None:
    file = _source_file(module)
    if file is None:
        return None
    return _root_of(module.__name__, file)


@functools.cache
def _root_of(name: str, file: Path) -> Path:
    depth = name.count(".") + (1 if file.name == "__init__.py" else 0)
    parents = file.resolve().parents
    return parents[depth] if name != "__main__" and depth < len(parents) else parents[0]


@functools.cache
def _installed() -> tuple[Path, ...]:
    places = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(place).resolve() for place in places)


@functools.cache
def _is_installed(folder: Path) -> bool:
    # Debian's Pythons have dist-packages instead.
    in_site = any(part in ("site-packages", "dist-packages") for part in folder.parts)
    return in_site or folder in _installed()


def unpicklable_part(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    pickle: Callable[[Any], object],
) -> str | None:
    """Return the name of the first argument or variable that ``pickle`` refuses, or None."""
    named = [(f"args[{number}]", value) for number, value in enumerate(args)]
    parts = [*named, *kwargs.items()]
    if inspect.isfunction(fn):
        variables = inspect.getclosurevars(fn)
        used = {**variables.nonlocals, **variables.globals}
        parts += [(f"{name} (used by {fn.__name__})", value) for name, value in used.items()]
    for name, value in parts:
        try:
            pickle(value)
        except Exception:  # pickling runs the value's own code
            return name
    return None

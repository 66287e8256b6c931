"""Which modules a function of the user's needs that no instance has, and how they travel.

Modules that are imported by now are pickled by value with the function. An import inside a function runs in the job:
what it finds beside the function's module travels as a file.
"""

import dis
import functools
import importlib.machinery
import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from raysm.contract.source import Source, imports_its_package_late, late_modules, source_of_modules
from raysm.request import Workload
from raysm.request.workload import KINDS

__all__ = ["late_source", "own_modules", "source_of_kind"]


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

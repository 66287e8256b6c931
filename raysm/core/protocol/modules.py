"""The user's modules in pickles: one copy of each module in a process.

A class of the user's own module is pickled by value, since the other process may lack the module. A
process that can import the same source takes the class from there instead: a second class of that
name would be neither equal nor identical to the first. Modules without a folder to lie in, as in a
session, are sent inside of the pickle.
"""

import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

PARTS = 6
"""Length of what cloudpickle returns for a class by value; the last is a function that sets its
state."""

_made: "weakref.WeakKeyDictionary[type, str]" = weakref.WeakKeyDictionary()
"""Classes that this process made from a pickle, with the SHA-256 of the source that defines
them."""


def shared(kind: type, reduction: Any) -> Any:
    """Return cloudpickle's reduction of a class: a process with the same source uses its own."""
    if not isinstance(reduction, tuple) or len(reduction) != PARTS:
        return reduction
    module = sys.modules.get(kind.__module__)
    digest = _made.get(kind) or _digest_of_spec(getattr(module, "__spec__", None))
    if digest is None or kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return reduction
    make, args, state, *_, set_state = reduction
    where = (kind.__module__, kind.__qualname__, digest)
    return own_or_made, (*where, make, args), (set_state, state), None, None, set_unless_own


def own_or_made(
    module: str, name: str, digest: str, make: Callable[..., type], args: tuple[Any, ...]
) -> type:
    """Return the class ``name`` of a module with this source, or make it."""
    own = _own(module, name, digest)
    if own is not None:
        return own
    kind = make(*args)
    _made[kind] = digest
    return kind


def set_unless_own(kind: type, state: tuple[Callable[[type, Any], Any], Any]) -> None:
    if kind in _made:
        set_state, values = state
        set_state(kind, values)


def _own(module: str, name: str, digest: str) -> type | None:
    found = sys.modules.get(module)
    try:
        spec = importlib.util.find_spec(module) if found is None else found.__spec__
        if _digest_of_spec(spec) != digest:
            return None
        found = importlib.import_module(module)
        own = functools.reduce(getattr, name.split("."), found)
    # The module's own code runs here, and may lack what it imports.
    except Exception:
        return None
    return own if isinstance(own, type) else None


def _digest_of_spec(spec: importlib.machinery.ModuleSpec | None) -> str | None:
    if spec is None:
        return None
    if spec.loader is _finder:
        _, source = _finder.sources[spec.name]
        return hashlib.sha256(source).hexdigest()
    path = Path(spec.origin or "")
    if path.suffix not in importlib.machinery.SOURCE_SUFFIXES:
        return None
    try:
        now = path.stat()
        return _digest(path, now.st_mtime_ns, now.st_size)
    except OSError:
        return None


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, changed_ns: int, size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def needs_module(name: str | None) -> str:
    """Return what a reader of a pickle can do about a module that it lacks."""
    package = str(name).partition(".")[0]
    return (
        f"needs the module {name!r}, which cannot be imported here: "
        "read it in a program beside that module, or put its folder into PYTHONPATH; "
        f"or install it: python3 -m pip install {package}"
    )


class WithModules:
    """A function whose pickle first makes modules importable, by name, from their sources."""

    def __init__(self, function: Any, files: Mapping[str, Path]) -> None:
        self.function = function
        self._files = files

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle reads arguments in their order, so the modules are there when it reads the
        # function.
        return _second, (_Sources(_read(self._files)), self.function)


class _Sources:
    def __init__(self, sources: dict[str, tuple[str, bytes]]) -> None:
        self._sources = sources

    def __reduce__(self) -> tuple[Any, ...]:
        return install, (self._sources,)


def _second(first: object, second: Any) -> Any:
    return second


def _read(files: Mapping[str, Path]) -> dict[str, tuple[str, bytes]]:
    """Return each module's file and source by name; of a namespace package both are empty."""
    sources: dict[str, tuple[str, bytes]] = {}
    for name, path in files.items():
        if path.suffix in importlib.machinery.SOURCE_SUFFIXES:
            parts = name.removesuffix(path.suffix).split("/")
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            sources[".".join(parts)] = str(path), path.read_bytes()
            for depth in range(1, len(parts)):
                sources.setdefault(".".join(parts[:depth]), ("", b""))
    return sources


def install(sources: Mapping[str, tuple[str, bytes]]) -> None:
    """Let this process import modules from these sources, unless it finds others of their names."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
    for name, source in sources.items():
        before = _finder.sources.get(name)
        if before is not None and before != source:
            # It was edited since the last call.
            sys.modules.pop(name, None)
        _finder.sources[name] = source


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def __init__(self) -> None:
        self.sources: dict[str, tuple[str, bytes]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.sources:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def is_package(self, fullname: str) -> bool:
        file, _ = self.sources[fullname]
        inside = f"{fullname}."
        return Path(file).stem == "__init__" or any(
            name.startswith(inside) for name in self.sources
        )

    def get_source(self, fullname: str) -> str:
        _, source = self.sources[fullname]
        return importlib.util.decode_source(source)

    def get_code(self, fullname: str) -> Any:
        file, source = self.sources[fullname]
        return compile(source, file or f"<{fullname}>", "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__, _ = self.sources[module.__name__]
        super().exec_module(module)
        # The processes of Ray's tasks have no such finder: there it is made anew from the pickle.
        ray = sys.modules.get("ray")
        if ray is not None:
            ray.cloudpickle.register_pickle_by_value(module)


_finder = _Finder()

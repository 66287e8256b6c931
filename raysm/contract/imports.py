"""Which modules a Python file imports, and where they lie beside it: read from its text, nothing is imported.

What flows in are files, what flows out are names and files. Python looks into the folder of the script first, so a
module that lies there wins over an installed one of the same name; a folder without ``__init__.py`` is the last that it
looks at.
"""

import ast
import functools
import importlib.machinery
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "find_module",
    "imported_modules",
    "imports_its_package_late",
    "is_code",
    "late_modules",
    "read_tree",
    "top_level_names",
]

SUFFIXES = (*importlib.machinery.EXTENSION_SUFFIXES, *importlib.machinery.SOURCE_SUFFIXES)
"""Of modules, in the order in which Python looks for them."""

CODE_SUFFIXES = (".py", ".pyi", ".so", ".pyd")
"""Of files that are code whatever their size."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
"""What is not run when its module is imported."""

CALLS = ("import_module", "__import__")
"""Functions that import the module that their first argument names."""


def is_code(path: Path) -> bool:
    """Return whether a file of a package is code, rather than data."""
    return path.name.endswith(CODE_SUFFIXES)


def read_tree(path: Path) -> ast.Module:
    """Parse a Python file.

    Raises:
        SyntaxError: This Python cannot read it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's odd escapes the job itself will warn
        try:
            return ast.parse(path.read_bytes(), str(path))
        except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; brackets without end
            raise SyntaxError(str(error)) from error


def top_level_names(tree: ast.AST) -> Iterator[str]:
    """Yield the first part of every module that is imported absolutely, wherever the import stands."""
    for node in ast.walk(tree):
        yield from _named_by(node)


def _named_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=aliases):
            yield from (alias.name.partition(".")[0] for alias in aliases)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(str(module)), *_]):
            # The name of a module that is made up at run time cannot be read here.
            if called in CALLS:
                yield module.partition(".")[0]


def imported_modules(files: Iterable[Path]) -> set[str]:
    """Return the top-level names that Python files import; one that cannot be parsed imports nothing."""
    return set().union(*(names.all for names in map(_names_in, files)))


def late_modules(files: Iterable[Path]) -> set[str]:
    """Return those of them that are imported inside functions: not before these are called."""
    return set().union(*(names.late for names in map(_names_in, files)))


def imports_its_package_late(file: Path) -> bool:
    """Return whether a file imports from its own package by dots, inside functions."""
    return _names_in(file).is_late_by_dots


@dataclass(frozen=True, slots=True)
class _Names:
    """What one file imports."""

    all: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    is_late_by_dots: bool = False
    """Whether a function imports ``from . import …``: of which package, the file does not say."""


def _names_in(path: Path) -> _Names:
    try:
        is_now = path.stat()
        return _names_read(path, is_now.st_mtime_ns, is_now.st_size)
    except (SyntaxError, OSError):  # a template, or Python 2: whoever imports it will hear it
        return _Names()


# A program that submits often has the same files each time: 800 of them took 7 s to read, with every function.
@functools.lru_cache(maxsize=16_384)
def _names_read(path: Path, changed_ns: int, size: int) -> _Names:
    at_once: set[str] = set()
    late: set[str] = set()
    by_dots = False
    waiting: list[tuple[ast.AST, bool]] = [(read_tree(path), False)]
    while waiting:
        node, is_late = waiting.pop()
        (late if is_late else at_once).update(_named_by(node))
        by_dots |= is_late and type(node) is ast.ImportFrom and node.level > 0
        is_late |= type(node) in FUNCTIONS
        waiting += ((child, is_late) for child in ast.iter_child_nodes(node))
    return _Names(frozenset(at_once | late) - {""}, frozenset(late) - {""}, by_dots)


def find_module(name: str, folder: Path) -> Path | None:
    """Return the file or package folder that ``import name`` would find in ``folder``; None where it would find none.

    Args:
        name: A top-level name.
        folder: The one that comes first in ``sys.path``.
    """
    package = folder / name
    if (package / "__init__.py").is_file():
        return package
    for suffix in SUFFIXES:
        module = folder / f"{name}{suffix}"
        if module.is_file():
            return module
    is_namespace = package.is_dir() and name not in sys.stdlib_module_names and not _is_installed(name, folder)
    return package if is_namespace and any(package.rglob("*.py")) else None


@functools.cache
def _is_installed(name: str, folder: Path) -> bool:
    """Return whether a package or module of that name lies elsewhere: it wins over a folder without ``__init__.py``."""
    places = [place for place in sys.path if Path(place or ".").resolve() != folder.resolve()]
    spec = importlib.machinery.PathFinder.find_spec(name, places)
    # Of folders without __init__.py the first wins, which is that of the script.
    return spec is not None and spec.origin is not None

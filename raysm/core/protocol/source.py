"""Find the files of the user's source that travel with a job.

With a script travel the modules and packages beside it that it imports, and those that these
import. They are found by parsing the files, as Python would find them with the script's folder
first in ``sys.path``; nothing is imported. A package travels whole, except files over 1 MB that are
not code. A source folder that the user names travels whole. Hidden files, caches, virtual
environments and earlier results of raysm never travel.
"""

import ast
import functools
import importlib.machinery
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raysm.core.protocol.names import listed
from raysm.core.protocol.result import MARK, Manifest
from raysm.core.request.workload import ScriptWorkload
from raysm.errors import InvalidConfig, InvalidRequest, option

SUFFIXES = (*importlib.machinery.EXTENSION_SUFFIXES, *importlib.machinery.SOURCE_SUFFIXES)
CODE_SUFFIXES = (".py", ".pyi", ".so", ".pyd")
MAX_FIRST_LINE = 256
"""Bytes of a script's first line that are read; Linux reads no more."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
"""Nodes whose bodies do not run when the module is imported."""
CALLS = ("import_module", "__import__")
"""Functions that import the module that their first argument names."""


def read_tree(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the job itself will print the warnings
        try:
            return ast.parse(path.read_bytes(), str(path))
        except (
            ValueError,
            RecursionError,
            MemoryError,
        ) as error:  # NUL bytes, or too many brackets
            raise SyntaxError(str(error)) from error


def _named_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=aliases):
            yield from (alias.name.partition(".")[0] for alias in aliases)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]
        case ast.Call(
            func=ast.Name(id=called) | ast.Attribute(attr=called),
            args=[ast.Constant(str(module)), *_],
        ):
            if called in CALLS:
                yield module.partition(".")[0]


def imported_modules(files: Iterable[Path]) -> set[str]:
    return set().union(*(names.all for names in map(_names_in, files)))


def late_modules(files: Iterable[Path]) -> set[str]:
    return set().union(*(names.late for names in map(_names_in, files)))


def imports_its_package_late(file: Path) -> bool:
    return _names_in(file).is_late_by_dots


@dataclass(frozen=True, slots=True)
class _Names:
    all: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    is_late_by_dots: bool = False


def _names_in(path: Path) -> _Names:
    try:
        is_now = path.stat()
        return _names_read(path, is_now.st_mtime_ns, is_now.st_size)
    # For example a template or Python 2, whose import would fail in the job too.
    except (SyntaxError, OSError):
        return _Names()


# Cached, because parsing 800 files takes 7 s, and a program that submits often has the same files
# each time.
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
    """Return the file or package folder that ``import name`` would find in ``folder``.

    ``folder`` is the first in ``sys.path``.
    """
    package = folder / name
    if (package / "__init__.py").is_file():
        return package
    for suffix in SUFFIXES:
        module = folder / f"{name}{suffix}"
        if module.is_file():
            return module
    is_namespace = (
        package.is_dir() and name not in sys.stdlib_module_names and not _is_installed(name, folder)
    )
    return package if is_namespace and any(package.rglob("*.py")) else None


@functools.cache
def _is_installed(name: str, folder: Path) -> bool:
    """Return whether another folder has a module of that name.

    Python prefers it to a namespace package.
    """
    places = [place for place in sys.path if Path(place or ".").resolve() != folder.resolve()]
    spec = importlib.machinery.PathFinder.find_spec(name, places)
    # Another namespace package has no origin; of two, Python takes the first, which is the
    # script's.
    return spec is not None and spec.origin is not None


MAX_BYTES = 50_000_000
MANY_FILES = 1_000
MAX_DATA_BYTES = 1_000_000
"""Maximum size of a data file in a package: enough for word lists and configurations, but not for
weights."""
MAX_NAMED = 3
OWN = "raysm"
MISSING = re.compile(r"No module named '([\w.]+)'")
OF_AN_IMPORT = re.compile(
    r"circular import|cannot import name|No module named|has no attribute|the image lacks"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    script: str | None
    folder: Path
    files: Mapping[str, Path]
    """Local paths by the name below the source folder of the instance, POSIX."""
    left_behind: Mapping[str, Path] = field(default_factory=dict)
    """Large files of the packages, which do not travel because they are not code."""
    outside: Mapping[str, Path] = field(default_factory=dict)
    """Real paths, by name, of files outside of the folder that travel because a link leads to
    them."""

    def __post_init__(self) -> None:
        for name in self.files:
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise InvalidRequest(
                    f"the name of the file {name!r} in {str(self.folder)!r} is not UTF-8; rename it"
                ) from error

    @property
    def summary(self) -> str:
        names = sorted(self.files, key=lambda name: (name != self.script, "/" in name, name))
        text = (
            f"{listed(names, MAX_NAMED)}, "
            f"{_text_of(sum(path.stat().st_size for path in self.files.values()))}"
        )
        if self.outside:
            links = [f"{name} -> {target}" for name, target in self.outside.items()]
            text += f"; {len(links):,} of the files lie outside of {self.folder}, through links: "
            text += listed(links, MAX_NAMED)
        if self.left_behind:
            large = [
                f"{name} ({_text_of(path.stat().st_size)})"
                for name, path in self.left_behind.items()
            ]
            text += f"; not {listed(large, MAX_NAMED)}, which is no code: make it an input"
            text += (
                "" if self.script is None else f", or send the folder with {option('source_dir')}"
            )
        return text

    @property
    def warning(self) -> str | None:
        sizes = {name: path.stat().st_size for name, path in self.files.items()}
        if len(sizes) <= MANY_FILES and sum(sizes.values()) <= MAX_BYTES:
            return f"{self.folder} sends {self.summary}" if self.outside else None
        largest = max(sizes, key=lambda name: sizes[name])
        return (
            f"{self.folder} sends {len(sizes):,} files, {_text_of(sum(sizes.values()))}, "
            f"the largest of them {largest} with {_text_of(sizes[largest])}: "
            "each is uploaded by itself, and downloaded by every instance; "
            f"make data an input, and keep what is no source out of {option('source_dir')}"
        )

    @property
    def hiding(self) -> list[str]:
        """The files that hide modules of Python's standard library.

        Their folder is the first in the path.
        """
        own = sys.stdlib_module_names
        return [
            name for name in self.files if name.endswith(".py") and name.removesuffix(".py") in own
        ]

    def remedy_for(self, failure: str) -> str | None:
        """Return the remedy for a failure by a missing or hidden module; None for others."""
        if OF_AN_IMPORT.search(failure):
            for name in self.hiding:
                stem = name.removesuffix(".py")
                if "circular import" in failure or re.search(rf"\b{stem}\b", failure):
                    return (
                        f"{name} hides Python's own module {stem!r}, which other packages import: "
                        "give the file another name"
                    )
        missing = MISSING.search(failure)
        if missing is None:
            return None
        # The message may name a submodule.
        name = missing[1].partition(".")[0]
        if name == "smdistributed":
            return (
                "raysm.training replaces smdistributed: "
                "docs/guides/come-from-smdistributed.md shows each call"
            )
        module = find_module(name, self.folder)
        if module is None:
            return (
                f"if a package has {name}, send it: --requirement {name} (in Python: "
                f"requirements=[{name!r}])"
            )
        # A module that has travelled is missing for another reason.
        if any(path == module or module in path.parents for path in self.files.values()):
            return None
        where = "the function's file" if self.script is None else self.script
        remedy = (
            ""
            if self.script is None
            else f", or send the folder with {option('source_dir', str(self.folder))}"
        )
        return (
            f"{module.name} lies beside {where}, and no import names it, so it was not sent: "
            f"import it there{remedy}"
        )


def source_of(workload: ScriptWorkload) -> Source:
    _check_there(workload)
    if workload.source_dir is not None:
        folder = Path(workload.source_dir)
        files = {path.relative_to(folder).as_posix(): path for path in _below(folder)}
        script_name = workload.script if workload.command else _name_in(folder, workload.script)
        real_folder = folder.resolve()
        real = {name: path.resolve() for name, path in files.items()}
        outside = {
            name: path for name, path in real.items() if not path.is_relative_to(real_folder)
        }
        return Source(script=script_name, folder=folder, files=files, outside=outside)
    script = Path(workload.script)
    if workload.command:
        return Source(script=workload.script, folder=Path(), files={})
    if interpreter(script):
        return _with_neighbours(script, (), script.resolve().parent)
    try:
        # A script that cannot be parsed would travel without its imports and fail in the job.
        read_tree(script)
    except SyntaxError as error:
        raise InvalidRequest(
            f"{workload.script}, line {error.lineno or 1}: {error.msg}; correct it; if the script "
            f"is for another version of Python, send its whole folder: {option('source_dir')}"
        ) from error
    # If the script is a link, Python imports from the folder of its target.
    return _with_neighbours(script, imported_modules([script]), script.resolve().parent)


def interpreter(script: Path) -> tuple[str, ...]:
    """Return the words that run a script which is not Python.

    The words are ``bash``, or those of the script's first line. There are none for a script of
    Python.

    Args:
        script: A file.
    """
    if script.suffix == ".sh":
        return ("bash",)
    with script.open("rb") as file:
        first = file.readline(MAX_FIRST_LINE).decode(errors="replace")
    words = tuple(first.removeprefix("#!").split()) if first.startswith("#!") else ()
    return () if any("python" in word for word in words) else words


def source_of_modules(names: Iterable[str], folder: Path) -> Source:
    return _with_neighbours(None, names, folder)


def _check_there(workload: ScriptWorkload) -> None:
    script = Path(workload.script)
    is_command = workload.command
    if workload.source_dir is None:
        if not is_command and not script.is_file():
            raise InvalidRequest(
                f"the script {workload.script!r} is not there, or is no file; check the path"
            )
        return
    folder = Path(workload.source_dir)
    if not folder.is_dir():
        raise InvalidRequest(f"source_dir={workload.source_dir!r} is not there, or is no folder")
    if is_command:
        return
    name = Path(_name_in(folder, workload.script))
    # A script outside of the folder would not travel.
    if name.is_absolute() or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise InvalidRequest(
            f"the script {workload.script!r} must be a path inside "
            f"source_dir={workload.source_dir!r}"
        )
    if not (folder / name).is_file():
        raise InvalidRequest(
            f"source_dir={workload.source_dir!r} holds no script {workload.script!r}"
        )


def _name_in(folder: Path, script: str) -> str:
    """Return the script's path inside ``folder``, if it is given relative to a known folder.

    Known are that folder and the working folder.
    """
    path = Path(script)
    if path.is_absolute() or not (folder / path).is_file():
        # The file itself may be a link, whose own name counts.
        here = path.parent.resolve() / path.name
        real_folder = folder.resolve()
        if here.is_file() and here.is_relative_to(real_folder):
            return here.relative_to(real_folder).as_posix()
    return path.as_posix()


def _with_neighbours(script: Path | None, names: Iterable[str], folder: Path) -> Source:
    modules = _neighbours(names, folder)
    files = {} if script is None else {script.name: script}
    left_behind: dict[str, Path] = {}
    for path in (file for module in modules for file in _files_of(module)):
        name = path.relative_to(folder).as_posix()
        is_small = path.name.endswith(CODE_SUFFIXES) or path.stat().st_size <= MAX_DATA_BYTES
        # If a link names the script, a module beside the real file may have the link's name: the
        # script wins.
        (files if is_small else left_behind).setdefault(name, path)
    name_of_script = None if script is None else script.name
    source = Source(script=name_of_script, folder=folder, files=files, left_behind=left_behind)
    # A folder that the user named may be larger, with a warning.
    sizes = {name: path.stat().st_size for name, path in source.files.items()}
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        otherwise = (
            "build a wheel of the code"
            if source.script is None
            else f"send the folder with {option('source_dir')}"
        )
        raise InvalidRequest(
            f"{source.script or 'the function'} and what it imports beside it are "
            f"{_text_of(sum(sizes.values()))}, more than {MAX_BYTES // 1_000_000} MB; the largest "
            f"is {largest} with {_text_of(sizes[largest])}: make data an input, or {otherwise}"
        )
    return source


def _neighbours(names: Iterable[str], folder: Path) -> list[Path]:
    """Return ``folder``'s modules and packages among ``names``, and those they import in turn."""
    modules: dict[str, Path] = {}
    waiting = sorted(set(names) - {OWN})
    while waiting:
        name = waiting.pop()
        module = find_module(name, folder)
        if name in modules or module is None:
            continue
        modules[name] = module
        waiting += imported_modules(path for path in _files_of(module) if path.suffix == ".py") - {
            OWN
        }
    return [modules[name] for name in sorted(modules)]


def _files_of(module: Path) -> Iterable[Path]:
    return _below(module) if module.is_dir() else (module,)


def _below(folder: Path, inside: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files below ``folder`` that may travel, in the order of their names."""
    real_folder = folder.resolve()
    if real_folder in inside:  # a link to a folder that it lies in
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            if not _is_no_source(path):
                yield from _below(path, (*inside, real_folder))
        elif path.is_file():
            yield path


def _is_no_source(folder: Path) -> bool:
    """Return whether a folder is a virtual environment, or an earlier result of raysm."""
    if (folder / "pyvenv.cfg").is_file() or (folder / MARK).is_file():
        return True
    try:
        # A user's folder may contain another manifest.json.
        Manifest.read(folder)
    except (InvalidConfig, InvalidRequest):
        return False
    return True


def _text_of(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"

"""The features that are installed: each is an entry point of the group ``raysm.features``.

An entry point names a ``Feature``, which says what the feature adds to raysm. raysm's own features
are found in the same way as those of other packages, but before them, so that a name of raysm's
own costs no look at every package of the environment.
"""

import contextlib
import functools
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import raysm
from raysm.errors import MissingDependency

GROUP = "raysm.features"


class Entry(NamedTuple):
    """An entry point: its name, and where its feature is, ``module:name``."""

    name: str
    value: str


Paths = Mapping[str, str]
"""``module:name`` by name; what it names is imported when it is used."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What a feature adds, as ``module:name`` by name."""

    kinds: Paths = field(default_factory=dict)
    """Kinds of workload, by the name that request files use."""
    names: Paths = field(default_factory=dict)
    """Public names: ``raysm.Similarity``."""
    hooks: Paths = field(default_factory=dict)
    """Attributes of the package ``raysm`` that other libraries look for; they are no public
    names."""
    commands: Paths = field(default_factory=dict)
    """Functions that add a command of ``raysm`` to its parser, by the name of the command; see
    ``raysm.cli.parser``."""
    views: Paths = field(default_factory=dict)
    """Functions that the core and other features call if this feature is there: those behind
    methods of a job."""
    rows: Paths = field(default_factory=dict)
    """Functions that return rows of the table of experiments, by what they are rows of, ``grid``.

    Each is called with the name of one, or None for all of this machine, and with the maximum
    number of rows of each, and returns ``raysm.core.client.job.experiment.Experiment``, the latest
    first.
    """


def within(package: str, **modules: Iterable[str]) -> Paths:
    """Return names by their module in ``package``.

    ``within("a.b", c=("X",))`` is ``{"X": "a.b.c:X"}``.

    A dot in the name of a module is written as two underscores.
    """
    return {
        name: f"{package}.{module.replace('__', '.')}:{name}"
        for module, names in modules.items()
        for name in names
    }


def path_of(table: str, name: str) -> str | None:
    """Return where ``name`` of a table of features is, ``module:name``, or None."""
    for feature in installed():
        if path := getattr(feature, table).get(name):
            return str(path)
    return None


def all_paths(table: str) -> dict[str, str]:
    """Return a table of all features in one.

    Of two equal names, the first one counts, and raysm's own comes first.
    """
    found: dict[str, str] = {}
    for feature in installed():
        for name, path in getattr(feature, table).items():
            found.setdefault(name, path)
    return found


def view(name: str, table: str = "views") -> Any:
    """Return the function ``name`` of the feature that offers it.

    ``table`` is ``views`` or ``rows``.

    Raises:
        MissingDependency: No installed feature does.
    """
    found = offered(name, table)
    if found is None:
        raise MissingDependency(
            f"no feature that is installed offers {name!r}: "
            "this raysm lacks one of its own features; install all of raysm again"
        )
    return found


def installed() -> Iterator[Feature]:
    """Yield raysm's features, then those of other packages, each imported at its turn."""
    for entry in own_entries():
        yield from _feature_of(entry)
    for entry in _other_entries():
        yield from _feature_of(entry)


def offered(name: str, table: str = "views") -> Any:
    """Return the function ``name`` of the feature that offers it, or None if no feature does."""
    path = path_of(table, name)
    return None if path is None else pkgutil.resolve_name(path)


@functools.cache
def own_entries() -> tuple[Entry, ...]:
    """Return raysm's own entry points.

    They are those of the source tree that it is imported from, or of the installed package.

    Only what stands beside the package is read, since a look at all installed packages takes 0.1 s.
    """
    beside = Path(raysm.__file__).parents[1]
    project = beside / "pyproject.toml"
    if project.is_file():
        text = project.read_text(encoding="utf-8")
        if '\nname = "raysm"\n' in text:
            return _entries_in(text, f'[project.entry-points."{GROUP}"]')
    # An instance begins with an archive, whose files its loader reads.
    loader: Any = raysm.__loader__
    with contextlib.suppress(OSError):
        installed = beside / f"raysm-{raysm.__version__}.dist-info" / "entry_points.txt"
        return _entries_in(loader.get_data(str(installed)).decode(), f"[{GROUP}]")
    import importlib.metadata

    entries = importlib.metadata.distribution("raysm").entry_points.select(group=GROUP)
    return tuple(Entry(entry.name, entry.value) for entry in entries)


def _entries_in(text: str, heading: str) -> tuple[Entry, ...]:
    """Return the lines ``name = value`` below a heading, as both kinds of file have them."""
    # The modules that read TOML, or the metadata of packages, take longer than all that is read.
    table = text.partition(f"{heading}\n")[2].partition("\n[")[0]
    pairs = (line.split("=", 1) for line in table.splitlines() if "=" in line)
    return tuple(Entry(name.strip(), value.strip(' "')) for name, value in pairs)


@functools.cache
def _other_entries() -> tuple[Entry, ...]:
    import importlib.metadata

    found = [
        Entry(entry.name, entry.value) for entry in importlib.metadata.entry_points(group=GROUP)
    ]
    return tuple(entry for entry in found if entry not in own_entries())


@functools.cache
def _feature_of(entry: Entry) -> tuple[Feature, ...]:
    """Return the feature, or nothing if its folder was taken out.

    Nothing is also returned if another package's feature cannot be imported.
    """
    module = entry.value.partition(":")[0]
    try:
        return (pkgutil.resolve_name(entry.value),)
    except Exception as error:  # another package's module may raise anything
        is_gone = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(
            f"{error.name}."
        )
        if not is_gone and module.startswith("raysm."):
            raise
        if not is_gone:
            warnings.warn(
                f"the feature {entry.name!r} ({entry.value}) is left out: {error}", stacklevel=2
            )
        return ()

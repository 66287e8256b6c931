"""The wing of the similarity keeps its order: which room may import which, no circle, and no room that overflows."""

import ast
from pathlib import Path

import pytest

from raysm.workloads import similarity

WING = Path(similarity.__file__).parent
PREFIX = "raysm.workloads.similarity"

BELOW_MODES = {"arithmetic", "reading", "engines", "tasks", "sizing", "output", "runs"}

ALLOWED = {
    "arithmetic": set(),
    "reading": {"arithmetic"},
    "engines": {"arithmetic"},
    "tasks": {"arithmetic", "reading", "engines"},
    "sizing": {"arithmetic", "reading"},
    "output": {"arithmetic", "reading"},
    "runs": {"reading", "tasks"},
    "modes": BELOW_MODES,
    "layouts": BELOW_MODES | {"modes"},
    "estimating": {"arithmetic", "reading", "tasks", "sizing", "modes"},
    "gpus": {"engines", "runs", "modes", "layouts"},
    "run": BELOW_MODES | {"modes", "layouts", "gpus"},
}
"""Room, or module of the wing itself -> what it may import, lowest first."""

MOST_FILES = 12

MOST_LINES = 400


def modules():
    return sorted(path for path in WING.rglob("*.py") if path.name != "__init__.py")


def imported(path):
    """Return the modules of the wing that ``path`` imports, wherever in the file and for whatever purpose."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path):
    return path.relative_to(WING).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(WING)))
def test_a_room_imports_only_from_rooms_below_it(path):
    used = {name.removeprefix(f"{PREFIX}.").split(".")[0] for name in imported(path) if name.startswith(f"{PREFIX}.")}
    assert used - {room(path)} <= ALLOWED[room(path)]


def test_no_modules_import_each_other():
    names = {".".join([PREFIX, *path.relative_to(WING).with_suffix("").parts]): path for path in modules()}
    below = {
        name: {known for known in names for used in imported(path) if used == known or used.startswith(f"{known}.")}
        for name, path in names.items()
    }
    while below:
        free = {name for name, used in below.items() if not used & below.keys()}
        assert free, f"a circle among {sorted(below)}"
        below = {name: used for name, used in below.items() if name not in free}


def test_what_a_reader_sees_at_once_is_not_too_much():
    crowded = [folder for folder in [WING, *WING.rglob("*/")] if len(list(folder.glob("*.py"))) > MOST_FILES + 1]
    long = [path for path in modules() if len(path.read_text().splitlines()) > MOST_LINES]
    assert (crowded, long) == ([], [])


def test_every_room_says_what_it_is_for():
    rooms = [folder for folder in WING.iterdir() if folder.is_dir() and folder.name != "__pycache__"]
    assert {folder.name for folder in rooms} <= ALLOWED.keys()
    assert all(ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) for folder in rooms)

"""Which part of a workload may import which."""

import ast
from pathlib import Path

import pytest

from raysm import workloads
from tests.support.sources import imported

BELOW_MODES = {"arithmetic", "reading", "engines", "tasks", "sizing", "output", "runs"}

ALLOWED = {
    "similarity": {
        "arithmetic": set(),
        "reading": {"arithmetic"},
        "kernels": set(),
        "engines": {"arithmetic", "kernels"},
        "tasks": {"arithmetic", "reading", "engines"},
        "sizing": {"arithmetic", "reading"},
        "output": {"arithmetic", "reading"},
        "runs": {"reading", "tasks"},
        "modes": BELOW_MODES,
        "owners": {"arithmetic", "reading", "tasks", "runs", "modes"},
        "layouts": BELOW_MODES | {"modes", "owners"},
        "estimate": {"reading", "tasks", "sizing", "modes"},
        "gpus": {"engines", "runs", "modes", "layouts"},
        "run": BELOW_MODES | {"modes", "owners", "layouts", "gpus"},
    },
    "training": {
        "degrees": set(),
        "loop": {"degrees"},
        "engines": {"degrees", "loop"},
        "evaluation": {"loop", "engines"},
        "parallel": {"degrees", "loop", "engines", "evaluation"},
        "checkpoint": {"degrees", "loop", "engines", "parallel"},
        "measure": {"degrees", "loop"},
        "results": {"loop"},
        "launch": {"loop", "measure", "results"},
        "prepare": {"degrees", "loop", "engines", "parallel", "checkpoint", "measure"},
    },
}
"""Wing -> room, or module of the wing itself -> what it may import, lowest first."""

WINGS = Path(workloads.__file__).parent


def modules(wing):
    return sorted(path for path in (WINGS / wing).rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize(
    "path", [path for wing in ALLOWED for path in modules(wing)], ids=lambda path: str(path.relative_to(WINGS))
)
def test_a_room_imports_only_from_rooms_below_it(path):
    wing, room, *_ = path.relative_to(WINGS).with_suffix("").parts
    prefix = f"raysm.workloads.{wing}."
    names = imported(ast.parse(path.read_text()))
    used = {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}
    assert used - {room} <= ALLOWED[wing][room]

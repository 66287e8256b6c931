"""Every dense engine that this machine runs, by the name that a test shows."""

import pytest

from raysm.features.similarity.cluster.engines.compiled import CompiledEngine
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.kernels.build import (
    FLOATS,
    INTEGERS,
    Unavailable,
    this_machine,
)

MADE = {
    f"{bits} {instructions.name}{' mixed' * mixed}": (bits, instructions, mixed)
    for bits, instructions in (*INTEGERS, *FLOATS)
    if instructions.runs_on(this_machine())
    for mixed in (False, True)
}
ENGINES = ["NumPy", *MADE]


def engine_of(name, columns):
    """Return the engine of a name for rows of so many columns; skips the test where it cannot be built."""
    if name == "NumPy":
        return PlainEngine()
    bits, instructions, mixed = MADE[name]
    try:
        return CompiledEngine(bits, instructions, columns, mixed=mixed)
    except Unavailable as reason:
        pytest.skip(str(reason))

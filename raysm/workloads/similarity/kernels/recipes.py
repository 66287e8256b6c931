"""What libraries are made of the C files: which source, for which instructions, with which options of the compiler.

A recipe has a digest of all that its library depends on but the compiler. A library that was made elsewhere is taken
only if it has the digest of this recipe.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raysm.workloads.similarity.kernels.instructions import (
    AMX,
    AVX2,
    AVX512,
    BASELINE,
    DOT,
    NEON,
    VNNI,
    InstructionSet,
)

__all__ = ["DENSE", "FLOATS", "INTEGERS", "Recipe", "SPARSE", "all_recipes", "dense", "sparse"]

DENSE = Path(__file__).with_name("dense.c")
SPARSE = Path(__file__).with_name("sparse.c")

# No strict aliasing: sparse.c looks at the bits of its float sums through a pointer to integers.
OPTIONS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-math-errno")

EXACT = ("-ffp-contract=off", "-fno-fast-math", "-fno-associative-math", "-Wno-psabi")
"""Each product is rounded, then added, as NumPy does."""

INTEGERS = ((8, AMX), (8, VNNI), (16, AVX512), (16, AVX2), (8, DOT))
"""Low precision, by the bits of its elements, of each machine the fastest first."""

FLOATS = ((32, AVX512), (32, AVX2), (32, NEON))

SPARSE_FOR = (AVX512, AVX2, BASELINE)
"""What ``sparse.c`` is made for, the best first."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One library."""

    source: Path
    """The C file; the headers beside it belong to it."""
    instructions: InstructionSet
    """Which the processor must have."""
    more: tuple[str, ...] = ()
    """Options of this library's own."""

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (*OPTIONS, *EXACT, *self.instructions.options, *self.more)

    def digest(self, machine: str, *beside: str) -> str:
        """Return a digest of what the library depends on, for a file's name.

        Args:
            machine: It is for, ``x86_64``.
            beside: What else it depends on.
        """
        # With the machine: the baseline's options are the same on all of them.
        identity = hashlib.sha256("\0".join([*self.options, machine, *beside]).encode())
        # Every header, whichever the source includes; sorted, since a folder lists its files in any order, and whoever
        # looks into a wheel has to come to the digest of the machine that made it.
        for part in (self.source, *sorted(self.source.parent.glob("*.h"))):
            identity.update(part.read_bytes())
        return identity.hexdigest()[:32]


def dense(bits: int, instructions: InstructionSet) -> Recipe:
    """Return the library of dense rows with products of that kind: 8 (int8), 16 (int16) or 32 (float32)."""
    return Recipe(DENSE, instructions, (f"-DKIND={bits}",))


def sparse(instructions: InstructionSet) -> Recipe:
    """Return the library of sparse rows."""
    return Recipe(SPARSE, instructions)


def all_recipes(machine: str) -> Iterator[Recipe]:
    """Yield every library that a processor of a machine may use."""
    for bits, instructions in (*INTEGERS, *FLOATS):
        if instructions.runs_on(machine):
            yield dense(bits, instructions)
    for instructions in SPARSE_FOR:
        if instructions.runs_on(machine):
            yield sparse(instructions)

"""Recipes of the compiled libraries: the source, the instructions of the processor, and the compiler's options.

A recipe has a digest of all that its library depends on, except the compiler. A prebuilt library is
used only if its name has the digest of the recipe.
"""

import ctypes
import functools
import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Linux's numbers on x86-64 of the system call, the request, and the feature: the tiles in a
thread's state."""

X86 = "x86_64"
ARM = "aarch64"
MACHINES = {"x86_64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}
"""Machines that have kernels: the system's names, and the names of Linux and compilers for them."""


def this_machine() -> str:
    return MACHINES.get(platform.machine(), platform.machine())


@functools.cache
def _tiles_allowed() -> bool:
    """Ask Linux, once for all threads of this process, whether they may use tiles.

    It refuses if it is too old, or if a thread's signal stack is too small for the tiles' 8 KiB.
    """
    # Call it by number, because the C library has no function for it.
    refused: int = ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    return refused == 0


@dataclass(frozen=True, slots=True)
class InstructionSet:
    name: str
    flags: tuple[str, ...]
    machine: str | None = X86
    """The machine that has them; None is any."""
    architecture: str | None = None
    """The processor's name for ARM compilers; x86-64 compilers use the flags."""
    allowed: Callable[[], bool] = lambda: True
    """Asks the kernel to allow the instructions; called only if the processor has the flags."""
    least_columns: int = 1

    def runs_on(self, machine: str) -> bool:
        return self.machine in (None, machine)

    @property
    def options(self) -> tuple[str, ...]:
        if self.architecture is not None:
            return (f"-march={self.architecture}",)
        # Linux writes amx_tile and avx512_vnni, compilers amx-tile and avx512vnni.
        return tuple(
            f"-m{flag.replace('_', '-' if flag.startswith('amx') else '')}" for flag in self.flags
        )


BASELINE = InstructionSet("any", (), machine=None)
AVX2 = InstructionSet("AVX2", ("avx2", "fma", "f16c"))
AVX512 = InstructionSet("AVX-512", (*AVX2.flags, "avx512f", "avx512bw", "avx512dq", "avx512vl"))
VNNI = InstructionSet("AVX-512 VNNI", (*AVX512.flags, "avx512_vnni"))
AMX = InstructionSet(
    "AMX", (*VNNI.flags, "amx_tile", "amx_int8"), allowed=_tiles_allowed, least_columns=32
)
"""Rows are padded to 64 bytes: shorter ones would be mostly zeros, and exceed the memory that
``sizing`` plans."""

DOT = InstructionSet(
    "NEON dot", ("asimddp",), machine=ARM, architecture="armv8.2-a+dotprod", least_columns=8
)
"""Every Graviton that SageMaker has, from the second on; rows are padded to 16 bytes, as above."""
NEON = InstructionSet("NEON", ("asimd",), machine=ARM, architecture="armv8-a", least_columns=2)


@functools.cache
def cpu_flags() -> frozenset[str]:
    return FLAGS_OF.get(this_machine(), frozenset)()


def _flags_of_x86() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(
        next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split()
    )


AT_HWCAP = 16
HWCAPS = {"asimd": 1 << 1, "asimddp": 1 << 20}
"""Bits of AT_HWCAP on ARM (https://docs.kernel.org/arch/arm64/elf_hwcaps.html)."""


def _flags_of_arm() -> frozenset[str]:
    # Not from /proc/cpuinfo, which an emulator shows from the real machine.
    try:
        ask = ctypes.CDLL(None).getauxval
    except AttributeError:  # macOS
        return frozenset()
    # Without these types, ctypes would truncate the 64 flags to a C int.
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    offered = ask(AT_HWCAP)
    return frozenset(name for name, bit in HWCAPS.items() if offered & bit)


FLAGS_OF: Mapping[str, Callable[[], frozenset[str]]] = {X86: _flags_of_x86, ARM: _flags_of_arm}


DENSE = Path(__file__).with_name("dense.c")
SPARSE = Path(__file__).with_name("sparse.c")

# No strict aliasing: sparse.c looks at the bits of its float sums through a pointer to integers.
OPTIONS = (
    "-O3",
    "-std=gnu11",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-fno-math-errno",
)

EXACT = ("-ffp-contract=off", "-fno-fast-math", "-fno-associative-math", "-Wno-psabi")
"""Each product is rounded, then added, as NumPy does."""

INTEGERS = ((8, AMX), (8, VNNI), (16, AVX512), (16, AVX2), (8, DOT))
"""Kinds of low precision: bits of the elements and instructions, the fastest of each machine
first."""

FLOATS = ((32, AVX512), (32, AVX2), (32, NEON))
SPARSE_FOR = (AVX512, AVX2, BASELINE)
"""Instructions that ``sparse.c`` is compiled for, the best first."""


@dataclass(frozen=True, slots=True)
class Recipe:
    source: Path
    """The C file; the headers beside it belong to it."""
    instructions: InstructionSet
    more: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return (*OPTIONS, *EXACT, *self.instructions.options, *self.more)

    def digest(self, machine: str, *beside: str) -> str:
        """Return a digest of what the library depends on, for a file's name; ``beside`` are further texts."""
        # The machine counts, because the baseline's options are the same on all machines.
        identity = hashlib.sha256("\0".join([*self.options, machine, *beside]).encode())
        # Include every header, and sort them: folders list files in any order, but a wheel's
        # digests must be the same on all machines.
        for part in (self.source, *sorted(self.source.parent.glob("*.h"))):
            identity.update(part.read_bytes())
        return identity.hexdigest()[:32]


def dense(bits: int, instructions: InstructionSet) -> Recipe:
    return Recipe(DENSE, instructions, (f"-DKIND={bits}",))


def sparse(instructions: InstructionSet) -> Recipe:
    return Recipe(SPARSE, instructions)


def all_recipes(machine: str) -> Iterator[Recipe]:
    for bits, instructions in (*INTEGERS, *FLOATS):
        if instructions.runs_on(machine):
            yield dense(bits, instructions)
    for instructions in SPARSE_FOR:
        if instructions.runs_on(machine):
            yield sparse(instructions)

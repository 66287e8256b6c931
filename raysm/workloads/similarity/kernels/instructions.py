"""The instructions of processors that the kernels are made for, and whether this process may use them."""

import ctypes
import functools
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "AMX",
    "ARM",
    "AVX2",
    "AVX512",
    "BASELINE",
    "DOT",
    "NEON",
    "VNNI",
    "X86",
    "InstructionSet",
    "cpu_flags",
    "this_machine",
]

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Linux's numbers on x86-64: of the call, of the request, and of the part of a thread's state that tiles are."""

X86 = "x86_64"
ARM = "aarch64"
MACHINES = {"x86_64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}
"""What systems call the machines that there are kernels for, and what Linux and compilers do."""


def this_machine() -> str:
    """Return what Linux calls this machine's processor, ``x86_64``."""
    return MACHINES.get(platform.machine(), platform.machine())


def _nothing_to_ask() -> bool:
    return True


@functools.cache
def _tiles_allowed() -> bool:
    """Ask Linux, once for all threads of this process, whether they may use tiles.

    It refuses if it is too old, and where some thread's stack for signals could not hold the tiles' 8 KiB.
    """
    # By its number: the C library has no function for it.
    refused: int = ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    return refused == 0


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What a processor must have, by Linux's names, and the compiler's options for it."""

    name: str
    flags: tuple[str, ...]
    machine: str | None = X86
    """Whose instructions they are; None is any machine's."""
    architecture: str | None = None
    """What compilers for ARM call a processor that has them; those for x86-64 go by the flags."""
    allowed: Callable[[], bool] = _nothing_to_ask
    """Asks the kernel for what a process may use only with its leave; called where the processor has the flags."""
    least_columns: int = 1
    """They do not pay for shorter rows."""

    def runs_on(self, machine: str) -> bool:
        """Return whether a machine may have them."""
        return self.machine in (None, machine)

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's options."""
        if self.architecture is not None:
            return (f"-march={self.architecture}",)
        # Linux writes amx_tile and avx512_vnni, compilers amx-tile and avx512vnni.
        return tuple(f"-m{flag.replace('_', '-' if flag.startswith('amx') else '')}" for flag in self.flags)


BASELINE = InstructionSet("any", (), machine=None)
AVX2 = InstructionSet("AVX2", ("avx2", "fma", "f16c"))
AVX512 = InstructionSet("AVX-512", (*AVX2.flags, "avx512f", "avx512bw", "avx512dq", "avx512vl"))
VNNI = InstructionSet("AVX-512 VNNI", (*AVX512.flags, "avx512_vnni"))
AMX = InstructionSet("AMX", (*VNNI.flags, "amx_tile", "amx_int8"), allowed=_tiles_allowed, least_columns=32)
"""Rows are padded to 64 bytes: shorter ones would be mostly zeros, and take more memory than tasks reckon with."""

DOT = InstructionSet("NEON dot", ("asimddp",), machine=ARM, architecture="armv8.2-a+dotprod", least_columns=8)
"""Every Graviton that SageMaker has, from the second on; rows are padded to 16 bytes, as above."""
NEON = InstructionSet("NEON", ("asimd",), machine=ARM, architecture="armv8-a", least_columns=2)


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Return what the processor and the kernel offer, as Linux names it; nothing elsewhere."""
    return FLAGS_OF.get(this_machine(), frozenset)()


def _flags_of_x86() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


AT_HWCAP = 16
HWCAPS = {"asimd": 1 << 1, "asimddp": 1 << 20}
"""What Linux tells every process on ARM (https://docs.kernel.org/arch/arm64/elf_hwcaps.html)."""


def _flags_of_arm() -> frozenset[str]:
    # Not from /proc/cpuinfo: under an emulator that is the one of the machine around it.
    try:
        ask = ctypes.CDLL(None).getauxval
    except AttributeError:  # macOS
        return frozenset()
    # Without them ctypes takes the answer for a C int, half of the 64 flags that it holds.
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    offered = ask(AT_HWCAP)
    return frozenset(name for name, bit in HWCAPS.items() if offered & bit)


FLAGS_OF: Mapping[str, Callable[[], frozenset[str]]] = {X86: _flags_of_x86, ARM: _flags_of_arm}

"""How the C files become libraries: recipes, and libraries from a wheel or the compiler.

A ``Recipe`` has the source, the instructions of the processor, and the compiler's options, and a
digest of all that its library depends on, except the compiler.

``make`` compiles the libraries of a wheel for ``setup.py``: for this machine, and for the other one
if Debian's cross compiler is installed (``gcc-aarch64-linux-gnu``, ``gcc-x86-64-linux-gnu``).
``platform_tag`` says on which platforms that wheel can be installed. ``find`` returns such a
library only if its name has the digest of the recipe; so if C files have changed since, the library
is compiled again. Libraries that are compiled at run time are kept in a private folder of the user
below the temporary folder, named by a digest of all that they depend on.
"""

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raysm.core.protocol import names
from raysm.core.protocol.paths import kernels_folder
from raysm.instance import environment

ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18
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

    Linux refuses if it is too old, or if a thread's signal stack is too small for the tiles' 8 KiB.
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
    min_columns: int = 1

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
    "AMX", (*VNNI.flags, "amx_tile", "amx_int8"), allowed=_tiles_allowed, min_columns=32
)
"""Rows are padded to 64 bytes: shorter ones would be mostly zeros, and exceed the memory that
``sizing`` plans."""

DOT = InstructionSet(
    "NEON dot", ("asimddp",), machine=ARM, architecture="armv8.2-a+dotprod", min_columns=8
)
"""Every Graviton that SageMaker has, from the second on; rows are padded to 16 bytes, as above."""
NEON = InstructionSet("NEON", ("asimd",), machine=ARM, architecture="armv8-a", min_columns=2)


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
    # macOS has no getauxval, and every processor of Apple's has these instructions.
    if sys.platform == "darwin":
        return frozenset(HWCAPS)
    # Not from /proc/cpuinfo, which an emulator shows from the real machine.
    try:
        ask = ctypes.CDLL(None).getauxval
    except AttributeError:
        return frozenset()
    # Without these types, ctypes would truncate the 64 flags to a C int.
    ask.argtypes = [ctypes.c_ulong]
    ask.restype = ctypes.c_ulong
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
        """Return a digest of what the library depends on, for a file's name.

        ``beside`` are further strings.
        """
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


FOLDER = Path(__file__).with_name("libraries")
LEAN = ("-Wl,-x",) if sys.platform == "darwin" else ("-s", "-Wl,--build-id=none")
"""Options that leave out symbols, and make the same bytes from the same source. The linker of macOS
refuses those of the others."""

MAKE_S = 300.0


def find(recipe: Recipe, folder: Path = FOLDER) -> Path | None:
    path = folder / _file_name(recipe, this_machine())
    return path if path.is_file() else None


def make(
    folder: Path,
    machines: Iterable[str] = (X86, ARM),
    recipes_of: Callable[[str], Iterable[Recipe]] = all_recipes,
) -> dict[str, int]:
    """Make all libraries for those machines that have a compiler here.

    Return how many each machine has. Libraries of these recipes that exist already are kept, and
    all others in ``folder`` are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    kept: set[Path] = set()
    for target in machines:
        compiler = compiler_for(target)
        recipes = list(recipes_of(target)) if compiler is not None else []
        # Two at a time: each takes a few seconds of a core.
        with ThreadPoolExecutor(2) as pool:
            paths = list(pool.map(partial(_make_one, str(compiler), folder, target), recipes))
        kept.update(paths)
        counts[target] = len(paths)
    for path in folder.iterdir():
        if path not in kept:
            path.unlink()
    return counts


MANYLINUX2014 = (2, 17)
"""The glibc of manylinux2014 (https://peps.python.org/pep-0599/), which Ray's own wheels need."""

GLIBC_SYMBOL = re.compile(rb"GLIBC_(\d+)\.(\d+)")
"""The version of a symbol of glibc, as ELF files name it."""


def platform_tag(folder: Path) -> str | None:
    """Return the platform tag of a wheel with these libraries (PEP 600).

    The tag names the libraries' machines, and the glibc that they need. Return None if there are no
    libraries, or if one is not linked with glibc: setuptools knows the tag of this machine.
    """
    needed: dict[str, tuple[int, int]] = {}
    for path in folder.glob("*.so"):
        target = path.name.partition("-")[0]
        versions = [
            (int(major), int(minor)) for major, minor in GLIBC_SYMBOL.findall(path.read_bytes())
        ]
        if not versions:
            return None
        needed[target] = max(MANYLINUX2014, needed.get(target, MANYLINUX2014), *versions)
    tags = []
    for target, (major, minor) in sorted(needed.items()):
        tags.append(f"manylinux_{major}_{minor}_{target}")
        # Older pips know only this name.
        if (major, minor) == MANYLINUX2014:
            tags.append(f"manylinux2014_{target}")
    return ".".join(tags) or None


def compiler_for(target: str) -> str | None:
    if target == this_machine():
        return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return shutil.which(f"{target.replace('_', '-')}-linux-gnu-gcc") or shutil.which(
        f"{target}-linux-gnu-gcc"
    )


def _file_name(recipe: Recipe, target: str) -> str:
    return f"{target}-{recipe.digest(target)}.so"


def _make_one(compiler: str, folder: Path, target: str, recipe: Recipe) -> Path:
    path = folder / _file_name(recipe, target)
    # Keep it, so that another ``pip install`` of the same tree takes only seconds.
    if not path.is_file():
        # Renamed when it is complete: the process would be killed by SIGBUS in an incomplete one.
        beside = path.with_suffix(".incomplete")
        # ``-lm`` must follow the source: with --as-needed, linkers drop libraries that no earlier
        # file needs.
        command = [compiler, *recipe.options, *LEAN, str(recipe.source), "-o", str(beside), "-lm"]
        subprocess.run(command, check=True, timeout=MAKE_S, stdin=subprocess.DEVNULL)
        beside.replace(path)
    return path


COMPILE_S = 120.0


class Unavailable(Exception):
    """An engine or library cannot run on this machine; the message says why, in one phrase."""


@functools.cache
def library(recipe: Recipe, *, folder: Path | None = None, carried: Path = FOLDER) -> ctypes.CDLL:
    """Return a library, prebuilt in ``carried`` or compiled into ``folder``.

    ``Unavailable`` if it cannot run here.
    """
    # A compiler also makes code that this processor cannot run: it would kill the process by
    # SIGILL.
    if not recipe.instructions.runs_on(this_machine()):
        raise Unavailable(f"{recipe.instructions.name} is not of {this_machine()}")
    missing = [flag for flag in recipe.instructions.flags if flag not in cpu_flags()]
    if missing:
        raise Unavailable(f"the processor lacks {missing[0]}")
    if not recipe.instructions.allowed():
        raise Unavailable(f"the kernel does not let this process use {recipe.instructions.name}")
    ready = find(recipe, carried)
    if ready is not None:
        try:
            return ctypes.CDLL(str(ready))
        except OSError:
            pass  # it was linked with another C library; compile one here
    named = environment.inherited().get(names.KERNELS)
    return _compile_library(recipe, folder or (Path(named) if named else kernels_folder()))


def check_sizes(functions: ctypes.CDLL, *structures: type[ctypes.Structure]) -> None:
    """Raise AssertionError if these structures have other sizes than those of the library."""
    theirs = (ctypes.c_int64 * len(structures))()
    functions.struct_bytes(theirs)
    for structure, size in zip(structures, theirs, strict=True):
        if ctypes.sizeof(structure) != size:
            raise AssertionError(
                f"{structure.__name__} has {ctypes.sizeof(structure)} bytes, but {size} in the "
                "kernels: "
                "their fields must be the same"
            )


def _compile_library(recipe: Recipe, folder: Path) -> ctypes.CDLL:
    compiler = compiler_for(this_machine())
    if compiler is None:
        raise Unavailable("no C compiler")
    # The name depends on source, options, machine and compiler.
    name = f"{recipe.digest(this_machine(), compiler, _version(compiler))}.so"
    try:
        path = _private_folder(folder) / name
        if not path.exists():
            _compile([compiler, *recipe.options, str(recipe.source)], path)
        # This fails if the temporary folder is mounted noexec.
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"the compiled kernels cannot be kept or loaded: {error}") from error


def _private_folder(folder: Path) -> Path:
    """Return the folder, creating it if needed.

    Refuse one that other users can write, who could run code here.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Not stat, which would follow a link that another user put there.
        status = folder.lstat()
    except OSError as error:
        raise Unavailable(f"no folder for compiled kernels: {error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Unavailable(f"{folder} is not this user's alone")
    return folder


def _version(compiler: str) -> str:
    try:
        answer = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
    # Without a version the library's name is unknown, so another engine must be used.
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{compiler} does not say its version: {error}") from error
    return answer.stdout


def _compile(command: list[str], path: Path) -> None:
    """Compile into a temporary file, then rename it: several tasks may compile at once."""
    handle, beside = tempfile.mkstemp(suffix=".so", prefix=".", dir=path.parent)
    os.close(handle)
    try:
        done = subprocess.run(
            [*command, "-o", beside, "-lm"],
            capture_output=True,
            text=True,
            timeout=COMPILE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
            raise Unavailable(f"{command[0]} cannot compile the kernels: {last}")
        os.replace(beside, path)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} did not end within {COMPILE_S:g} s") from error
    finally:
        # After success it was renamed, and does not exist.
        Path(beside).unlink(missing_ok=True)

"""The compiled kernels: C files, compiled where it runs, on first use, by the machine's own C compiler.

What flows out is a loaded library, or ``Unavailable`` with the reason, one phrase for the manifest. A library is kept
in a folder of the user's own under the temporary folder, named by a digest of all that it depends on.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "AMX",
    "AVX2",
    "AVX512",
    "BASELINE",
    "VNNI",
    "InstructionSet",
    "Unavailable",
    "compiled",
    "cpu_flags",
    "load",
]

SOURCE = Path(__file__).with_name("kernels.c")

OPTIONS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-math-errno")

EXACT = ("-ffp-contract=off", "-fno-fast-math", "-fno-associative-math", "-Wno-psabi")
"""Each product is rounded, then added, as NumPy does."""

COMPILE_S = 120.0

KEPT = Path(tempfile.gettempdir()) / f"raysm-kernels-{os.getuid()}"
"""Where libraries are kept."""


class Unavailable(Exception):
    """This machine cannot run it; the message says why, in one phrase."""


ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Linux's numbers on x86-64: of the call, of the request, and of the part of a thread's state that tiles are."""


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
    allowed: Callable[[], bool] = _nothing_to_ask
    """Asks the kernel for what a process may use only with its leave; called where the processor has the flags."""
    least_columns: int = 1
    """They do not pay for shorter rows."""

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's options."""
        # Linux writes amx_tile and avx512_vnni, compilers amx-tile and avx512vnni.
        return tuple(f"-m{flag.replace('_', '-' if flag.startswith('amx') else '')}" for flag in self.flags)


BASELINE = InstructionSet("any", ())
AVX2 = InstructionSet("AVX2", ("avx2", "fma", "f16c"))
AVX512 = InstructionSet("AVX-512", (*AVX2.flags, "avx512f", "avx512bw", "avx512dq", "avx512vl"))
VNNI = InstructionSet("AVX-512 VNNI", (*AVX512.flags, "avx512_vnni"))
AMX = InstructionSet("AMX", (*VNNI.flags, "amx_tile", "amx_int8"), _tiles_allowed, least_columns=32)
"""Rows are padded to 64 bytes: shorter ones would be mostly zeros, and take more memory than tasks reckon with."""


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Return what the processor and the kernel offer, as Linux names it; nothing elsewhere."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def load(kind: int, instructions: InstructionSet) -> ctypes.CDLL:
    """Return the library with products of that kind: 8 (int8), 16 (int16) or 32 (float32).

    Raises:
        Unavailable: The processor lacks the instructions, or there is no compiler that knows them.
    """
    return compiled(SOURCE, instructions, f"-DKIND={kind}")


@functools.cache
def compiled(source: Path, instructions: InstructionSet, *options: str, folder: Path | None = None) -> ctypes.CDLL:
    """Return the library made of one C file, with the headers beside it.

    It is kept in ``folder``; None is one of this user in the temporary folder.

    Raises:
        Unavailable: The processor lacks the instructions, the kernel does not let this process use them, or there is no
            compiler that knows them.
    """
    # A compiler makes what this processor cannot run as well; the process would die of it, with SIGILL.
    missing = [flag for flag in instructions.flags if flag not in cpu_flags()]
    if missing:
        raise Unavailable(f"the processor lacks {missing[0]}")
    if not instructions.allowed():
        raise Unavailable(f"the kernel does not let this process use {instructions.name}")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("no C compiler")
    command = [compiler, *OPTIONS, *EXACT, *instructions.options, *options]
    # All that the library depends on: with another compiler, processor or source it is another file.
    identity = hashlib.sha256("\0".join([*command, platform.machine(), _version(compiler)]).encode())
    for part in (source, *sorted(source.parent.glob("*.h"))):
        identity.update(part.read_bytes())
    try:
        path = _checked(folder or KEPT) / f"{identity.hexdigest()[:32]}.so"
        if not path.exists():
            _compile([*command, str(source)], path)
        # From a temporary folder that is mounted noexec, only this fails.
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"the compiled kernels cannot be kept or loaded: {error}") from error


def _checked(folder: Path) -> Path:
    """Return the folder, made if need be, if nobody else can write it: whoever could would run code here."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Not stat: a link that somebody else put there would pass for the folder that it leads to.
        status = folder.lstat()
    except OSError as error:
        raise Unavailable(f"no folder for compiled kernels: {error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Unavailable(f"{folder} is not this user's alone")
    return folder


def _version(compiler: str) -> str:
    try:
        answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=COMPILE_S, check=False)
    # One that cannot even say what it is makes nothing that could be named by it: the next engine is asked.
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{compiler} does not say its version: {error}") from error
    return answer.stdout


def _compile(command: list[str], path: Path) -> None:
    """Compile beside, then rename: several tasks of an instance may do so at the same time."""
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
        # Missing where all went well: it was renamed.
        Path(beside).unlink(missing_ok=True)

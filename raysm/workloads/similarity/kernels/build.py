"""Compiled kernels: libraries that a wheel carries, else compiled where they run by the machine's own C compiler.

``make`` compiles the libraries of a wheel for ``setup.py``: for this machine, and for the other one with Debian's cross
compiler, if it is installed (``gcc-aarch64-linux-gnu``, ``gcc-x86-64-linux-gnu``). ``find`` takes a library only if its
recipe and digest are those beside it: where C files have changed since, it is compiled again. Libraries that are
compiled at run time are kept in a folder of the user's own under the temporary folder, named by a digest of all that
they depend on. ``Unavailable`` has the reason in one phrase, for the manifest.
"""

import ctypes
import functools
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from raysm.bootstrap import environment
from raysm.contract import names
from raysm.contract.paths import kernels_folder
from raysm.workloads.similarity.kernels.recipes import (
    ARM,
    X86,
    InstructionSet,
    Recipe,
    all_recipes,
    cpu_flags,
    this_machine,
)

FOLDER = Path(__file__).with_name("libraries")
INDEX = "digests.json"
"""SHA-256 of every library by its name."""

LEAN = ("-s", "-Wl,--build-id=none")
"""No symbols, and the same bytes for the same source."""

MAKE_S = 300.0


def _index(folder: Path) -> dict[str, str]:
    try:
        digests: dict[str, str] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:  # a clone, which has none
        return {}
    return digests


def find(recipe: Recipe, folder: Path = FOLDER) -> Path | None:
    """Return the library that was made by a recipe, for this machine; None where there is none, or it is not whole."""
    path = folder / _name(recipe, this_machine())
    return path if _is_whole(path, _index(folder)) else None


def _is_whole(path: Path, index: Mapping[str, str]) -> bool:
    # Digested, not only loaded: one that is torn may load, and a page that is missing kills the process by SIGBUS.
    return path.is_file() and index.get(path.name) == hashlib.sha256(path.read_bytes()).hexdigest()


def make(
    folder: Path,
    machines: Iterable[str] = (X86, ARM),
    recipes_of: Callable[[str], Iterable[Recipe]] = all_recipes,
) -> dict[str, int]:
    """Make all libraries for those machines that there is a compiler for.

    Args:
        folder: Where to; made if need be. What an earlier call has made there by the same recipes stays as it is, and
            what it has made by others goes.
        machines: What they are for.
        recipes_of: Returns those of a machine.

    Returns:
        How many there are, by machine; 0 where there is no compiler for it.

    Raises:
        CalledProcessError: A compiler is there, and failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    earlier = _index(folder)
    digests: dict[str, str] = {}
    for target in machines:
        compiler = compiler_for(target)
        recipes = list(recipes_of(target)) if compiler is not None else []
        # Two at a time: each takes a few seconds, and waits for nothing but a core.
        with ThreadPoolExecutor(2) as pool:
            paths = list(pool.map(partial(_make_one, str(compiler), folder, target, earlier), recipes))
        digests |= {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        counts[target] = len(paths)
    for path in folder.glob("*.so"):
        if path.name not in digests:
            path.unlink()
    (folder / INDEX).write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return counts


def compiler_for(target: str) -> str | None:
    """Return the compiler that makes libraries for a machine; None where this one has none."""
    if target == this_machine():
        return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return shutil.which(f"{target.replace('_', '-')}-linux-gnu-gcc") or shutil.which(f"{target}-linux-gnu-gcc")


def _name(recipe: Recipe, target: str) -> str:
    return f"{target}-{recipe.digest(target)}.so"


def _make_one(compiler: str, folder: Path, target: str, earlier: Mapping[str, str], recipe: Recipe) -> Path:
    path = folder / _name(recipe, target)
    # ``pip install`` of the same tree, with other extras, is to take seconds.
    if _is_whole(path, earlier):
        return path
    # ``-lm`` behind the source: linkers that link as needed drop a library that no file before it has asked for.
    command = [compiler, *recipe.options, *LEAN, str(recipe.source), "-o", str(path), "-lm"]
    subprocess.run(command, check=True, timeout=MAKE_S, stdin=subprocess.DEVNULL)
    return path


COMPILE_S = 120.0


class Unavailable(Exception):
    """This machine cannot run it; the message says why, in one phrase."""


@functools.cache
def library(recipe: Recipe, *, folder: Path | None = None, carried: Path = FOLDER) -> ctypes.CDLL:
    """Return the library that a recipe makes: the one that raysm carries, else one that is compiled.

    Args:
        recipe: What it is made of.
        folder: Where compiled ones are kept; None is a folder of this user in the temporary folder.
        carried: Where those lie that raysm carries.

    Raises:
        Unavailable: The processor lacks the instructions, the kernel does not let this process use them, or there is no
            compiler that knows them.
    """
    _check_processor(recipe.instructions)
    ready = find(recipe, carried)
    if ready is not None:
        try:
            return ctypes.CDLL(str(ready))
        except OSError:
            pass  # another C library than the one that it was linked with: this machine's compiler makes its own
    named = environment.inherited().get(names.KERNELS)
    return _compiled(recipe, folder or (Path(named) if named else kernels_folder()))


def _check_processor(instructions: InstructionSet) -> None:
    # A compiler makes what this processor cannot run as well; the process would die of it, with SIGILL.
    if not instructions.runs_on(this_machine()):
        raise Unavailable(f"{instructions.name} is not of {this_machine()}")
    missing = [flag for flag in instructions.flags if flag not in cpu_flags()]
    if missing:
        raise Unavailable(f"the processor lacks {missing[0]}")
    if not instructions.allowed():
        raise Unavailable(f"the kernel does not let this process use {instructions.name}")


def _compiled(recipe: Recipe, folder: Path) -> ctypes.CDLL:
    compiler = compiler_for(this_machine())
    if compiler is None:
        raise Unavailable("no C compiler")
    # All that the library depends on: with another compiler, processor or source it is another file.
    name = f"{recipe.digest(this_machine(), compiler, _version(compiler))}.so"
    try:
        path = _checked(folder) / name
        if not path.exists():
            _compile([compiler, *recipe.options, str(recipe.source)], path)
        # From a temporary folder that is mounted noexec, only this fails.
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"the compiled kernels cannot be kept or loaded: {error}") from error


def _checked(folder: Path) -> Path:
    """Return the folder, made if need be, if no other user can write it, who could then run code here."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Not stat: a link that another user put there would pass for the folder that it leads to.
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

"""The compiled kernels: libraries that a wheel carries, else compiled where it runs by the machine's own C compiler.

``Unavailable`` has the reason in one phrase, for the manifest. What is compiled is kept in a folder of the user's own
under the temporary folder, named by a digest of all that it depends on.
"""

import ctypes
import functools
import os
import stat
import subprocess
import tempfile
from pathlib import Path

from raysm.bootstrap import environment
from raysm.contract import names
from raysm.contract.paths import kernels_folder
from raysm.workloads.similarity.kernels import prebuilt
from raysm.workloads.similarity.kernels.instructions import InstructionSet, cpu_flags, this_machine
from raysm.workloads.similarity.kernels.recipes import Recipe

__all__ = ["Unavailable", "library"]

COMPILE_S = 120.0


class Unavailable(Exception):
    """This machine cannot run it; the message says why, in one phrase."""


@functools.cache
def library(recipe: Recipe, *, folder: Path | None = None, carried: Path = prebuilt.FOLDER) -> ctypes.CDLL:
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
    ready = prebuilt.find(recipe, carried)
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
    compiler = prebuilt.compiler_for(this_machine())
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

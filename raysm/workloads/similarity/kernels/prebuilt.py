"""Libraries that a wheel carries, so that an image without a C compiler is as fast as one with.

``make`` makes them for ``setup.py``: for this machine with its compiler, for the other one with Debian's cross
compiler, if it is installed (``gcc-aarch64-linux-gnu``, ``gcc-x86-64-linux-gnu``). ``find`` takes a library only if its
recipe and digest are those that were written down beside it: where C files have changed since, it is compiled again.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from raysm.workloads.similarity.kernels.instructions import ARM, X86, this_machine
from raysm.workloads.similarity.kernels.recipes import Recipe, all_recipes

__all__ = ["FOLDER", "INDEX", "compiler_for", "find", "make"]

FOLDER = Path(__file__).with_name("libraries")
INDEX = "digests.json"
"""SHA-256 of every library by its name."""

LEAN = ("-s", "-Wl,--build-id=none")
"""No symbols, and the same bytes for the same source."""

COMPILE_S = 300.0


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
    subprocess.run(command, check=True, timeout=COMPILE_S, stdin=subprocess.DEVNULL)
    return path

"""What kind of house it is, in figures: of the working tree, and of a commit beside it.

    python3 -m tests.house [--beside bac6e15] [--pytest]

What flows in is source as text; nothing of it is imported. ``--pytest`` also runs the plain suite of both, one after
the other, in a copy of each, and prints its minutes: half an hour and more.

How it is counted: blank lines count in modules; functions are counted without their docstrings; a comment is one that
stands for a reader, so that ``noqa``, ``type:`` and the like are left out; parameters are counted without ``self``;
circles are groups of modules that import each other at any place, ``TYPE_CHECKING`` too; a duplicated line is one of a
run of at least six that stands the same, indentation aside, at another place; a module has a test where a ``test_*.py``
imports it, and one of its own where that file has its name and its folder; a value is named by how it was got where a
variable or a parameter is one of a few participles.
"""

import argparse
import ast
import io
import itertools
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import tokenize
from collections import defaultdict
from pathlib import Path

from tests.support.sources import circles, imports, modules_of

ROOT = Path(__file__).parents[1]
DIRECTIVES = ("noqa", "type:", "pragma", "fmt:", "ruff:", "mypy:", "!/")
MOST_PARAMETERS = 8
MOST_LINES = 400
BY_HOW_THEY_WERE_GOT = frozenset("found given told said kept known brought tried begun looked".split())
"""Names of values that say how they were got, and not what they are."""
RUN_LINES = 6
TEST_FOLDERS = {"benchmarks"}
"""Of tests/, what is measuring and not testing: its lines are not counted."""


def comments(text):
    """Return how many comments stand in ``text`` for a reader."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    texts = (token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)
    return sum(bool(words) and not words.startswith(DIRECTIVES) for words in texts)


def functions(tree):
    """Yield every function of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def body_lines(function):
    """Return the lines of a function without its docstring; blank ones count."""
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= first.end_lineno - first.lineno + 1
    return lines


def parameters(function):
    """Return how many parameters a caller may give."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([argument for argument in named if argument.arg not in ("self", "cls")])


def checks(module):
    """Return how often a module asks ``isinstance``."""
    calls = (node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return sum(isinstance(called, ast.Name) and called.id == "isinstance" for called in calls)


def named_by_how_they_were_got(module):
    """Return the lines that give a value such a name."""
    names = (
        (node.lineno, node.arg if isinstance(node, ast.arg) else node.id)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return sorted({line for line, name in names if name in BY_HOW_THEY_WERE_GOT})


def duplicated(modules):
    """Return how many lines stand in a run that stands elsewhere too; imports and blank lines do not count."""
    places, code = defaultdict(list), {}
    for name, module in modules.items():
        skipped = {
            line
            for node in ast.walk(module.tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for line in range(node.lineno, node.end_lineno + 1)
        }
        lines = enumerate(module.text.splitlines(), start=1)
        code[name] = [(number, line.strip()) for number, line in lines if line.strip() and number not in skipped]
        for begin in range(len(code[name]) - RUN_LINES + 1):
            run = tuple(line for _, line in code[name][begin : begin + RUN_LINES])
            places[run].append((name, begin))
    repeated = set()
    for found in places.values():
        if len(found) > 1:
            repeated |= {(name, begin + offset) for name, begin in found for offset in range(RUN_LINES)}
    return len(repeated)


def test_files(root):
    """Return the files of tests/ that pytest collects."""
    return [path for path in sorted((root / "tests").rglob("test_*.py")) if path.is_file()]


def untested(root, modules):
    """Return two lists of modules: those that no test imports, and those that no test of their own does."""
    used, own = set(), set()
    for path in test_files(root):
        of_file = set(imports(ast.parse(path.read_text()), modules))
        used |= of_file
        folder = path.relative_to(root / "tests").parent.parts
        own |= of_file & {".".join(("raysm", *folder, path.stem.removeprefix("test_")))}
    asked = [name for name, module in modules.items() if not module.is_package and not name.endswith("__main__")]
    return [name for name in asked if name not in used], [name for name in asked if name not in own]


def test_lines(root):
    """Return the lines of tests/ but those that measure."""
    paths = (root / "tests").rglob("*.py")
    return sum(
        path.read_text().count("\n") for path in paths if path.relative_to(root / "tests").parts[0] not in TEST_FOLDERS
    )


def figures(root):
    """Return what is measured of the tree at ``root``: names and values, in the order in which they are printed."""
    modules = modules_of(root)
    lengths = sorted(module.lines for module in modules.values())
    total = sum(lengths)
    every = [(module, function) for module in modules.values() for function in functions(module.tree)]
    bodies = sorted(body_lines(function) for _, function in every)
    without, without_own = untested(root, modules)
    return {
        "modules": len(modules),
        "lines of source": total,
        "median module lines": statistics.median(lengths),
        "largest module": lengths[-1],
        "modules > 400 lines": sum(length > MOST_LINES for length in lengths),
        "functions": len(every),
        "median function lines": statistics.median(bodies),
        "90 % of functions have at most": bodies[int(len(bodies) * 0.9)],
        "functions > 40 lines": sum(length > 40 for length in bodies),
        "functions > 8 parameters": sum(parameters(function) > MOST_PARAMETERS for _, function in every),
        "comments / 100 lines": 100 * sum(comments(module.text) for module in modules.values()) / total,
        "modules >= 100 lines without a comment": sum(
            module.lines >= 100 and not comments(module.text) for module in modules.values()
        ),
        "isinstance / 1,000 lines": 1000 * sum(map(checks, modules.values())) / total,
        "values named by how they were got": sum(
            len(named_by_how_they_were_got(module)) for module in modules.values()
        ),
        "circles of imports": len(circles(modules)),
        "duplicated lines": duplicated(modules),
        "lines of tests": test_lines(root),
        "tests : source": test_lines(root) / total,
        "modules that no test imports": len(without),
        "modules without a test of their own": len(without_own),
    }


def unpacked(commit, folder):
    """Write the tree of ``commit`` into ``folder``, and return it."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
    return folder


def pytest_minutes(root):
    """Run the plain suite of the tree at ``root``; return its minutes and pytest's last line."""
    begin_s = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=root, capture_output=True, text=True, check=False)
    return (time.monotonic() - begin_s) / 60, (done.stdout.strip().splitlines() or ["nothing was run"])[-1]


def details(root):
    """Yield lines that name what the figures count and should not be there."""
    modules = modules_of(root)
    for module in modules.values():
        for function in functions(module.tree):
            if parameters(function) > MOST_PARAMETERS:
                yield f"> {MOST_PARAMETERS} parameters: {module.name}.{function.name} ({parameters(function)})"
        if module.lines > MOST_LINES:
            yield f"> {MOST_LINES} lines: {module.name} ({module.lines})"
        for line in named_by_how_they_were_got(module):
            yield f"named by how it was got: {module.path.relative_to(root)}:{line}"
        if module.lines >= 100 and not comments(module.text):
            yield f"no comment in {module.lines} lines: {module.name}"
    yield from (f"circle: {', '.join(group)}" for group in circles(modules))
    without, without_own = untested(root, modules)
    yield from (f"no test imports {name}" for name in without)
    yield from (f"no test of its own: {name}" for name in without_own if name not in without)


def shown(value):
    return f"{value:,.2f}" if isinstance(value, float) and value % 1 else f"{value:,.0f}"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", metavar="COMMIT", help="a commit whose figures stand beside those of today")
    parser.add_argument("--pytest", action="store_true", help="run the plain suite of each, and print its minutes")
    parser.add_argument("--details", action="store_true", help="name what should not be there")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        roots = {"today": ROOT}
        if options.beside:
            roots = {options.beside: unpacked(options.beside, Path(folder) / "before"), **roots}
        columns = {name: {key: shown(value) for key, value in figures(root).items()} for name, root in roots.items()}
        if options.pytest:
            for name, root in roots.items():
                minutes, last = pytest_minutes(root)
                columns[name] |= {"minutes of the plain pytest": f"{minutes:.1f}", "its last line": last}
        rows = list(dict.fromkeys(itertools.chain.from_iterable(columns.values())))
        print(f"{'':42}" + "".join(f"{name:>14}" for name in columns))
        for row in rows:
            print(f"{row:42}" + "".join(f"{column.get(row, ''):>14}" for column in columns.values()))
        if options.details:
            print(*details(ROOT), sep="\n")


if __name__ == "__main__":
    main()

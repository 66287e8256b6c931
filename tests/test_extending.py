"""Each change that "Extending raysm" shows is applied to a copy of the tree, and does what stands under it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.homes import serving

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "extending.md"

TIMEOUT_S = 160

ERRAND = re.compile(
    r"^## (?P<title>.*?)$.*?```diff\n(?P<diff>.*?)```\n\n```python\n(?P<check>.*?)```", re.M | re.S
)

ERRANDS = {match["title"]: match for match in ERRAND.finditer(PAGE.read_text())}

ON_A_CLUSTER = ("A kind of workload", "A kind of instance")
"""Those whose check runs a job."""

LISTS_OF_FILES = "Where an option or an entry goes"
"""The last section, which has no change to apply."""


def files_of(diff):
    """Yield the path of each file of a diff, whether it is new, and its hunks as lines."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        old, new, *hunks = re.split(r"\n(?:\+\+\+ |@@\n)", part)
        lines = [hunk.rstrip("\n").split("\n") for hunk in hunks]
        yield new.removeprefix("b/"), old == "/dev/null", lines


def apply(diff, tree):
    """Apply a diff whose hunks have no line numbers: the lines that are there have to stand in the file once."""
    for path, is_new, hunks in files_of(diff):
        for lines in hunks:
            before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            text = "" if is_new else (tree / path).read_text()
            assert is_new or text.count(before) == 1, f"{path} has not once:\n{before}"
            (tree / path).parent.mkdir(exist_ok=True)
            (tree / path).write_text(after if is_new else text.replace(before, after))


@pytest.fixture
def tree(tmp_path):
    """A copy of the package, of what is checked with it, and of the examples."""
    for name in ("raysm", "examples"):
        shutil.copytree(
            ROOT / name, tmp_path / "tree" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "tree")
    return tmp_path / "tree"


def run(tree, *command, **variables):
    # Ahead of whatever raysm is installed: that one is not changed.
    environment = os.environ | {"PYTHONPATH": str(tree)} | variables
    ended = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


def check(tree, title, **variables):
    apply(ERRANDS[title]["diff"], tree)
    (tree / "check.py").write_text(
        f"import sys; sys.path.insert(0, {str(tree)!r})\nimport raysm\n"
        f"assert raysm.__file__.startswith({str(tree)!r}), raysm.__file__\n"
        + ERRANDS[title]["check"]
    )
    run(tree, sys.executable, "check.py", **variables)


def test_every_errand_of_the_page_is_here():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert titles == [*ERRANDS, LISTS_OF_FILES]
    assert set(ON_A_CLUSTER) < set(titles)


@pytest.mark.parametrize("title", [title for title in ERRANDS if title not in ON_A_CLUSTER])
def test_the_change_does_what_the_page_says(title, tree):
    check(tree, title)


@pytest.mark.long
@pytest.mark.parametrize("title", ON_A_CLUSTER)
def test_the_change_does_what_the_page_says_on_a_cluster(title, tree, tmp_path):
    with serving(tmp_path / "home") as home:
        check(tree, title, RAYSM_HOME=str(home))

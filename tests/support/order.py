"""Which tests run, and in which order."""

import functools
import os
import random
import re
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parents[1]

LONGEST = (
    "test_examples.py",
    "jobs/test_stalls.py",
    "test_tutorial.py",
    "jobs/test_sweep.py",
    "test_docs.py",
    "jobs/test_training_interrupted.py",
    "jobs/test_similarity.py",
    "jobs/test_training.py",
    "features/training/cluster/test_parallel_modes.py",
    "jobs/test_sharded_similarity.py",
    "features/grid/test_faults.py",
    "jobs/test_session_ends.py",
    "features/grid/batch_job/test_over_http.py",
    "features/training/sdk/test_model_trainer.py",
)
"""Files to begin with, so that no process still works on one of them when the others have nothing
left."""

RANKS = {TESTS / name: rank for rank, name in enumerate(LONGEST)}


def longest_first(items):
    """Sort tests by their files; those of one file stay together and keep their order."""
    items.sort(key=lambda item: _rank(item.path))


def _rank(path):
    """Return the place of a file: one process works for minutes on those that share a costly session fixture."""
    file = path.relative_to(TESTS.parent).as_posix()
    return RANKS.get(path, len(RANKS) + (_shared_by(file) == file))


SHARED = {"forks": r"\b(forks|ranks)\b", "one_ray": r"\b(one_ray|ray_here|address|base)\b"}
"""Session fixtures that take seconds of a core, and what functions of a file that uses one take."""


class SharingScheduling(LoadFileScheduling):
    """Gives all files that use a costly session fixture to one process, so that it is set up once."""

    def _split_scope(self, nodeid):
        return _shared_by(super()._split_scope(nodeid))


@functools.cache
def _shared_by(file):
    """Return the session fixture for whose sake a file goes where others go, or else the file itself."""
    if file.startswith(("tests/instance/work/", "tests/features/")):
        text = (TESTS.parent / file).read_text()
        for name, pattern in SHARED.items():
            if re.search(rf"^ *def .*{pattern}", text, re.MULTILINE):
                return name
    return file


def is_left_out(path, expression):
    """Return whether ``-m expression`` leaves out a whole file, as its text says, which need not be imported then.

    The expression is one mark, which the file lacks, or ``not a and not b``, of which
    ``pytestmark`` has one.
    """
    if not path.match("test_*.py"):
        return False
    if expression.isidentifier():
        return f"mark.{expression}" not in path.read_text()
    if not re.fullmatch(r"not \w+( and not \w+)*", expression):
        return False
    names = "|".join(re.findall(r"not (\w+)", expression))
    return (
        re.search(rf"^pytestmark = .*\bmark\.({names})\b", path.read_text(), re.MULTILINE)
        is not None
    )


SEED = "RAYSM_TESTS_SEED"
"""The variable with the seed of ``draw``: the processes of a run inherit it, and so draw alike."""


def seed():
    """Return the seed of this run: the given one, or a new one."""
    return os.environ.setdefault(SEED, str(random.randrange(1_000_000)))


def draw(items, count):
    """Return all tests but soak tests, and ``count`` of those, drawn by the seed; all in their order."""
    soak = [item for item in items if item.get_closest_marker("soak")]
    drawn = random.Random(seed()).sample(soak, min(count, len(soak)))
    left_out = set(soak) - set(drawn)
    return [item for item in items if item not in left_out]

"""Which tests run, and in which order."""

import os
import random
from pathlib import Path

TESTS = Path(__file__).parents[1]

LONGEST = (
    "test_examples.py",
    "jobs/test_hostile.py",
    "jobs/test_sweep.py",
    "test_tutorial.py",
    "jobs/test_training.py",
    "workloads/training/test_parallel_modes.py",
    "jobs/test_sharded_similarity.py",
)
"""Files to begin with, so that no process still works on one of them when the others have nothing left."""

RANKS = {TESTS / name: rank for rank, name in enumerate(LONGEST)}


def longest_first(items):
    """Sort tests by their files; those of one file stay together and keep their order."""
    items.sort(key=lambda item: RANKS.get(item.path, len(RANKS)))


def lacks_mark(path, expression):
    """Return whether ``-m expression`` is one mark that a file lacks, which need not be imported then."""
    return path.match("test_*.py") and expression.isidentifier() and f"mark.{expression}" not in path.read_text()


def shuffle_files(items):
    """Shuffle the files but the longest, so that a run that ends early (--until) leaves out other tests each time."""
    paths = sorted({item.path for item in items})
    _random().shuffle(paths)
    ranks = {path: len(RANKS) + rank for rank, path in enumerate(paths)} | RANKS
    items.sort(key=lambda item: ranks[item.path])


def draw(items, count):
    """Return all tests but soak tests, and ``count`` of those, drawn at random; all in their order."""
    soak = [item for item in items if item.get_closest_marker("soak")]
    left_out = set(soak) - set(_random().sample(soak, min(count, len(soak))))
    return [item for item in items if item not in left_out]


def _random():
    # All processes of a run must choose alike.
    return random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))

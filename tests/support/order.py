"""Which tests are run, and in which order: the longest first, so that no process waits at the end."""

import os
import random
from pathlib import Path

TESTS = Path(__file__).parents[1]

LONGEST = (
    "jobs/test_sharded_similarity.py",
    "test_examples.py",
    "grid/test_makespan.py",
    "jobs/test_hostile.py",
    "jobs/test_sweep.py",
    "test_tutorial.py",
    "jobs/test_training.py",
    "workloads/sweep/test_run.py",
    "workloads/training/checkpoint/test_resume_properties.py",
    "workloads/training/test_parallel_modes.py",
    "local/server/test_server.py",
    "workloads/similarity/test_run.py",
    "bootstrap/test_life_cycle.py",
    "jobs/test_tracking.py",
    "grid/test_faults.py",
    "grid/shared/test_sharing.py",
    "workloads/training/parallel/test_drawn_models.py",
    "test_fuzz.py",
    "bootstrap/test_control.py",
    "workloads/training/checkpoint/test_interrupted.py",
    "grid/test_ends.py",
    "workloads/session/test_processes.py",
    "jobs/test_session_ends.py",
    "jobs/test_images.py",
    "jobs/test_ray_address.py",
    "jobs/test_session_kinds.py",
    "workloads/test_blocks.py",
    "cli/test_local_server.py",
    "workloads/training/checkpoint/test_resume_layouts.py",
    "workloads/session/test_host.py",
    "bootstrap/test_entrypoint.py",
    "cli/test_main.py",
    "test_docs.py",
    "jobs/test_submit.py",
    "jobs/test_similarity.py",
    "grid/test_over_http.py",
    "jobs/test_batch.py",
    "client/test_on_this_machine.py",
    "jobs/test_training_interrupted.py",
    "jobs/test_life_cycle.py",
    "sdk/test_model_trainer.py",
    "workloads/sweep/test_group.py",
    "jobs/test_parallel_modes.py",
    "workloads/batch/test_run.py",
    "jobs/test_session.py",
    "bootstrap/test_real_ray.py",
    "client/test_submit.py",
    "local/server/test_life_cycle.py",
)
"""The longest first, plain and long runs together, as ``--durations`` shows them; all others come behind as usual."""

RANKS = {TESTS / name: rank for rank, name in enumerate(LONGEST)}


def longest_first(items):
    """Sort tests by their files; those of one file stay together, and in their order."""
    items.sort(key=lambda item: RANKS.get(item.path, len(RANKS)))


def has_none(path, marks):
    """Whether ``-m marks`` is one mark alone, and the file of tests has it nowhere.

    To import every file takes each process 15 s of a core; one in ten has tests that take longer.
    """
    return path.match("test_*.py") and marks.isidentifier() and f"mark.{marks}" not in path.read_text()


def by_chance(items):
    """Order the files by chance: what there may be no time for is another part each time."""
    paths = sorted({item.path for item in items})
    _chance().shuffle(paths)
    ranks = {path: rank for rank, path in enumerate(paths)}
    items.sort(key=lambda item: ranks[item.path])


def _chance():
    # The same in each process of a run.
    return random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))


def drawn(items, count):
    """Return so many of the tests by chance, in their order: the same ones in each process of a run."""
    chosen = set(_chance().sample(range(len(items)), min(count, len(items))))
    return [item for number, item in enumerate(items) if number in chosen]
